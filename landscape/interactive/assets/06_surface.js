// The surface in three dimensions, with the paths of runs, networks and the origin on it.

// The indices of those traces that move.
const [CURRENT, MARK] = [4, 5];

function surfaceTraces(card) {
  const { landscape, metric, scale, colours, frame } = card;
  const heights = landscape.drawn(metric, scale);
  const [low, high] = scale.ends;
  const known = heights.map((row) => [...row].filter((height) => !Number.isNaN(height)).length);
  // Software rendering takes half a minute for Plotly's lines on a surface with gaps.
  const gaps = known.some((count) => count < landscape.columns);
  const lines = scale.flat || gaps ? { show: false } : { show: true, ...scale.contours(14), color: colour("contour"), width: 1, highlight: false };
  const grid = {
    name: "surface", type: "surface", ...frame.surface(landscape.x, landscape.y), z: heights, cmin: low, cmax: high,
    colorscale: colours, showscale: false, connectgaps: false, hoverinfo: "none", contours: { z: lines },
    lighting: { ambient: 0.72, diffuse: 0.55, specular: 0.06, roughness: 0.75 },
    // WebGL cannot place a surface without any height, and would draw nothing any more.
    visible: known.some(Boolean),
  };
  // A surface needs two rows and two columns.
  return [landscape.thin ? thinGrid(landscape, grid, frame) : grid, ...pathTraces(card)];
}

// Coordinates of points on the surface; one without a height is not drawn.
function placed(points, { scale, frame }) {
  const there = points.filter(Boolean);
  return { ...frame.placeAll(there.map(({ x }) => x), there.map(({ y }) => y)), z: there.map(({ value }) => scale.tall.drawn(value)) };
}

// Points [x, y, height, colour] as a line; one without coordinates is a gap.
function ribbon(name, points, width, frame, color = points.map((point) => point[3])) {
  const [x, y, z] = [0, 1, 2].map((axis) => points.map((point) => point[axis]));
  return strokes(name, { ...frame.placeAll(x, y), z }, { color, width }, IN_SPACE);
}

// A path lies on the surface between its checkpoints, where a straight line would run through hills.
function draped({ landscape, metric, scale }, lift) {
  const { checkpoints: path, paths, times } = landscape;
  const projected = path?.projected[metric];
  const points = [];
  for (const [run, rows] of projected ? paths.entries() : []) {
    // A gap: nothing joins the end of a run with the start of the next.
    if (run) points.push([null, null, null, hue(landscape, run - 1, colour("path"))]);
    for (const [step, row] of rows.entries()) {
      const next = rows[step + 1] ?? row;
      const [from, to] = [row, next].map((each) => scale.tall.drawn(projected[each]));
      const own = times ? times.colours[run][step] : hue(landscape, run, colour("path"));
      const pieces = next === row ? 1 : piecesBetween(landscape, row, next);
      for (let piece = 0; piece < pieces; piece += 1) {
        const share = piece / pieces;
        const [x, y] = [path.x, path.y].map((places) => places[row] + share * (places[next] - places[row]));
        const below = piece ? scale.drawn(landscape.between(metric, x, y)) : NaN;
        points.push([x, y, (Number.isNaN(below) ? from + share * (to - from || 0) : below) + lift, own]);
      }
    }
  }
  return points;
}

function thinGrid(landscape, { z: heights, cmin, cmax, colorscale }, frame) {
  const z = heights.flatMap((row) => [...row]);
  const line = { color: colour("accent"), width: 4 };
  return marks("surface", { ...frame.placed(landscape.points([...z.keys()])), z }, { size: 5, color: z, cmin, cmax, colorscale },
    { ...IN_SPACE, mode: "lines+markers", line });
}

function pathTraces(card) {
  const { landscape, metric, scale, frame, standing, pointed } = card;
  const { origin, paths, isDifference, times } = landscape;
  const path = frame.placed(landscape.checkpoints);
  const [low, high] = scale.tall.ends;
  const lift = (high - low) / 100;
  const raised = (values) => values.map((value) => scale.tall.drawn(value) + lift);
  const ofRows = (rows) => ({ ...placesOf(path, rows), z: raised(rows.map((row) => footOf(path, metric, row).value)), customdata: rows });
  const ofOrigin = isDifference ? [] : [originValue(landscape, metric)];
  const place = { ...frame.placeAll(ofOrigin.map(() => origin.x), ofOrigin.map(() => origin.y ?? 0)), z: raised(ofOrigin) };
  const light = { color: "#ffffff", width: 2 };
  const hues = standing.map((_, run) => hue(landscape, run, colour("current")));
  const points = paths.flatMap((rows, run) => rows.map(() => hue(landscape, run, colour("path-point"))));
  const rows = times ? times.drawn[frame.aspect].flatMap(({ dots }) => dots) : paths.flat();
  const dots = times ? { size: 2, color: "#ffffff", line: EDGE } : { size: 3, color: points, line: { color: colour("path"), width: 1 } };
  return [
    ribbon("walk", draped(card, lift), 5, frame, paths.length > 1 || times ? undefined : colour("path")),
    marks("path", ofRows(rows), dots, IN_SPACE),
    marks("origin", place, { size: 5, symbol: "diamond", color: colour("origin"), line: EDGE }, IN_SPACE),
    marks("current", placed(standing, card), { size: 7, color: hues, line: light }, IN_SPACE),
    marks("mark", placed([pointed], card), { size: 6, color: colour("mark"), symbol: "circle", line: light }, IN_SPACE),
    marks("networks", ofRows(landscape.networks), { size: 5, symbol: "diamond", color: "#ffffff", line: EDGE }, IN_SPACE),
    ...(times ? [ribbon("arrows", chevrons(card, 1.5 * lift), 6, frame)] : []),
  ];
}

// The scene without the ranges of its floor and without its camera, which `Depth.framed` adds.
function surfaceLayout({ landscape, metric, scale, frame }) {
  const axis = (text) => ({ ...axisStyle(), showspikes: false, backgroundcolor: CLEAR, showbackground: false, nticks: 6, title: titled(text) });
  return {
    ...baseLayout(),
    margin: { l: 0, r: 0, t: 0, b: 0 },
    scene: {
      aspectmode: "manual", aspectratio: { ...frame.box }, dragmode: "turntable", xaxis: axis(frame.floor[0]), yaxis: axis(frame.floor[1]),
      zaxis: { ...axis(), title: valueTitle(landscape.text(metric), scale), ...scale.tall.axis(5, 0.07) },
    },
  };
}

function hasWebGL() {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("webgl2") ?? canvas.getContext("webgl");
  context?.getExtension("WEBGL_lose_context")?.loseContext();
  return Boolean(context);
}
