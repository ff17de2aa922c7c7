// The surface in three dimensions, with the paths of runs, networks and the origin on it.

// The indices of those traces that move.
const [CURRENT, MARK] = [4, 5];

function surfaceTraces(landscape, metric, scale, colours, frame, { current, mark }) {
  const heights = landscape.drawn(metric, scale);
  const [low, high] = scale.ends;
  // Software rendering takes half a minute for Plotly's lines on a surface with gaps.
  const gaps = heights.some((row) => [...row].some(Number.isNaN));
  const lines = scale.flat || gaps ? { show: false } : { show: true, ...scale.contours(14), color: colour("contour"), width: 1, highlight: false };
  const grid = {
    name: "surface", type: "surface", ...frame.surface(landscape.x, landscape.y), z: heights, cmin: low, cmax: high,
    colorscale: colours, showscale: false, connectgaps: false, hoverinfo: "none", contours: { z: lines },
    lighting: { ambient: 0.72, diffuse: 0.55, specular: 0.06, roughness: 0.75 },
    // WebGL cannot place a surface without any height, and would draw nothing any more.
    visible: heights.some((row) => row.some((height) => !Number.isNaN(height))),
  };
  // A surface needs two rows and two columns.
  const shown = landscape.thin ? thinGrid(landscape, heights, grid, frame) : grid;
  return [shown, ...pathTraces(landscape, metric, scale, current, mark, frame)];
}

// Coordinates of points on the surface; one without a height is not drawn.
function placed(points, scale, frame) {
  const there = points.filter(Boolean);
  return { ...frame.placeAll(there.map(({ x }) => x), there.map(({ y }) => y)), z: there.map(({ value }) => scale.tall.drawn(value)) };
}

// A path lies on the surface between its checkpoints, where a straight line would run through hills.
function draped(landscape, metric, scale, lift) {
  const path = landscape.checkpoints;
  const [x, y, z, colours] = [[], [], [], []];
  const projected = path?.projected[metric];
  if (!projected) return { x, y, z, colours };
  for (const [run, rows] of landscape.paths.entries()) {
    for (const [step, row] of rows.entries()) {
      const next = rows[step + 1];
      const [fromX, fromY, from] = [path.x[row], path.y[row], scale.tall.drawn(projected[row])];
      const pieces = step < rows.length - 1 ? piecesBetween(landscape, row, next) : 1;
      for (let piece = 0; piece < pieces; piece += 1) {
        const share = piece / pieces;
        x.push(fromX + share * (path.x[next] - fromX || 0));
        y.push(fromY + share * (path.y[next] - fromY || 0));
        const chord = from + share * (scale.tall.drawn(projected[next]) - from || 0);
        const below = piece ? scale.drawn(bilinear(landscape.x, landscape.y, landscape.values(metric), x.at(-1), y.at(-1))) : NaN;
        z.push((Number.isNaN(below) ? chord : below) + lift);
        colours.push(path.times ? path.times.colours[run][step] : runColour(run, colour("path")));
      }
    }
    // A gap: nothing joins the end of a run with the start of the next.
    if (run < landscape.paths.length - 1) {
      for (const list of [x, y, z]) list.push(null);
      colours.push(runColour(run, colour("path")));
    }
  }
  return { x, y, z, colours };
}

function thinGrid(landscape, heights, grid, frame) {
  const z = heights.flatMap((row) => [...row]);
  const marker = { size: 5, color: z, cmin: grid.cmin, cmax: grid.cmax, colorscale: grid.colorscale };
  const line = { color: colour("accent"), width: 4 };
  return marks("surface", { ...frame.placed(landscape.points([...z.keys()])), z }, marker, { ...IN_SPACE, mode: "lines+markers", line });
}

function pathTraces(landscape, metric, scale, current, mark, frame) {
  const path = frame.placed(landscape.checkpoints);
  const [low, high] = scale.tall.ends;
  const lift = (high - low) / 100;
  const raised = (values) => Array.from(values, (value) => scale.tall.drawn(value) + lift);
  const { origin, paths, isDifference } = landscape;
  const { colours, ...walk } = draped(landscape, metric, scale, lift);
  const times = path?.times;
  const rows = times ? times.drawn[frame.aspect].flatMap(({ dots }) => dots) : paths.flat();
  const ofRows = (chosen) => ({
    ...placesOf(path, chosen), z: raised(chosen.map((row) => path.projected[metric]?.[row] ?? NaN)), customdata: chosen,
  });
  const ofOrigin = isDifference ? [] : [originValue(landscape, metric)];
  const place = { ...frame.placeAll(ofOrigin.map(() => origin.x), ofOrigin.map(() => origin.y ?? 0)), z: raised(ofOrigin) };
  const light = { color: "#ffffff", width: 2 };
  const hues = current.map((_, run) => hue(landscape, run, colour("current")));
  const points = paths.flatMap((own, run) => own.map(() => runColour(run, colour("path-point"))));
  const dots = times ? { size: 2, color: "#ffffff", line: EDGE } : { size: 3, color: points, line: { color: colour("path"), width: 1 } };
  return [
    strokes("walk", frame.placed(walk), { color: paths.length > 1 || times ? colours : colour("path"), width: 5 }, IN_SPACE),
    marks("path", ofRows(rows), dots, IN_SPACE),
    marks("origin", place, { size: 5, symbol: "diamond", color: colour("origin"), line: EDGE }, IN_SPACE),
    marks("current", placed(current, scale, frame), { size: 7, color: hues, line: light }, IN_SPACE),
    marks("mark", placed([mark], scale, frame), { size: 6, color: colour("mark"), symbol: "circle", line: light }, IN_SPACE),
    marks("networks", ofRows(landscape.networks), { size: 5, symbol: "diamond", color: "#ffffff", line: EDGE }, IN_SPACE),
    ...(times ? [chevrons(landscape, metric, scale, 1.5 * lift, frame)] : []),
  ];
}

// The scene without the ranges of its floor and without its camera, which `Depth.framed` adds.
function surfaceLayout(landscape, metric, scale, frame) {
  const ticks = scale.tall.ticks(5);
  const axis = { ...axisStyle(), showspikes: false, backgroundcolor: "rgba(0,0,0,0)", showbackground: false, nticks: 6, title: { font: { size: 12 } } };
  return {
    ...baseLayout(),
    margin: { l: 0, r: 0, t: 0, b: 0 },
    scene: {
      aspectmode: "manual", aspectratio: { ...frame.box }, dragmode: "turntable",
      xaxis: { ...axis, title: { text: frame.floor[0], font: { size: 12 } } },
      yaxis: { ...axis, title: { text: frame.floor[1], font: { size: 12 } } },
      zaxis: {
        ...axis, title: { text: plotText(scaleLabel(landscape.text(metric), scale)), font: { size: 12 } },
        tickvals: ticks.map((tick) => scale.height(tick)), ticktext: scale.tall.tickTexts(ticks, 0.07),
      },
    },
  };
}

function hasWebGL() {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("webgl2") ?? canvas.getContext("webgl");
  context?.getExtension("WEBGL_lose_context")?.loseContext();
  return Boolean(context);
}
