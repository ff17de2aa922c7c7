// What the surface hides, by the rule of landscape/drawing/occlusion.py. Marks and paths in front of it move a little
// towards the camera: they stay at their place on the screen, and the surface does not cut them in half. What is behind it
// is drawn faint, so near the camera that nothing hides it.

// A mark lies on the surface where it is not farther below it than this share of the heights.
const LIFT = 0.03;
// How far marks move towards the camera, in units of the scene, whose longest side is about 1.
const NEARER = 0.08;

// The traces of a scene, then one for what is hidden of each mark; where their points are drawn, the camera says, and where
// they are is in `meta`.
function withHidden([surface, ...marks]) {
  const placed = marks.map((trace) => ({ ...trace, meta: { x: [...trace.x], y: [...trace.y], z: [...trace.z] } }));
  const behind = placed.map((trace) => {
    const nowhere = Array.from(trace.x, () => null);
    const faint = { ...trace, name: `${trace.name} behind`, opacity: 0.45, x: nowhere, y: nowhere, z: nowhere };
    return trace.name === "walk" ? { ...faint, line: { ...trace.line, dash: "dot", width: 4 } } : faint;
  });
  return [surface, ...placed, ...behind];
}

class Depth {
  // The traces of a scene as they would be without a camera, the first of which is the surface.
  constructor({ landscape, metric, scale, frame }, traces) {
    const { x, y } = landscape;
    Object.assign(this, { x, y, scale, frame, heights: landscape.metrics[metric].map((value) => scale.drawn(value)) });
    const [low, high] = finiteRange(this.heights);
    this.range = high - low;
    this.traces = traces.map((trace) => ({ name: trace.name, x: [...trace.x], y: [...trace.y], z: [...trace.z] }));
    this.flat = landscape.thin || !(this.range > 0);
  }

  // Gives the layout a box that holds everything, and stays as it is when marks move; in it the surface keeps the
  // proportions of the layout's box. Returns the camera as plotly counts it, from the middle of what the box holds.
  framed({ scene }, camera) {
    const shifts = ["x", "y", "z"].map((name) => {
      const flat = (traces) => finiteRange(traces.flatMap((trace) => trace[name].flatMap((value) => (value?.length ? [...value] : [value ?? NaN]))));
      const own = name === "z" ? this.scale.tall.ends : flat(this.traces.slice(0, 1));
      const [low, high] = name === "z" ? own : flat(this.traces);
      const room = 0.02 * (high - low) || 0.5;
      const range = [low - room, high + room];
      const unit = scene.aspectratio[name] / (own[1] - own[0] || range[1] - range[0]);
      scene.aspectratio[name] = unit * (range[1] - range[0]);
      scene[`${name}axis`].range = range;
      return unit * (mean(own) - mean(range));
    });
    return camera.map((value, at) => value + (at < 6 ? shifts[at % 3] : 0));
  }

  // Coordinates of all marks for a camera: { index: { x, y, z } }, the hidden ones under the indices after the others.
  seenFrom(view) {
    const found = {};
    for (const [index, trace] of this.traces.entries()) {
      if (index === 0) continue;
      const points = trace.x.map((x, at) => (x === null || !Number.isFinite(trace.z[at]) ? null : this.onSurface([x, trace.y[at], trace.z[at]])));
      const hidden = points.map((point) => point && this.hides(point, view.eye));
      found[index] = listed(points.map((point, at) => (point && !hidden[at] ? moved(point, view, NEARER) : null)));
      // A hidden stretch begins where the visible one ends.
      const behind = trace.name === "walk" ? hidden.map((own, at) => own || hidden[at - 1] || hidden[at + 1]) : hidden;
      found[this.behind(index)] = listed(points.map((point, at) => (point && behind[at] ? moved(point, view, Infinity) : null)));
    }
    return found;
  }

  // The index of the trace for what is hidden of a trace.
  behind(index) {
    return index + this.traces.length - 1;
  }

  // A mark that is a little below the surface lies on it.
  onSurface([x, y, z]) {
    if (this.flat) return [x, y, z];
    const below = bilinear(this.x, this.y, this.heights, ...this.frame.back(x, y)) - z;
    return [x, y, below > 0 && below <= LIFT * this.range ? z + below + 0.01 * this.range : z];
  }

  // Whether a straight line from a point to the eye meets the surface, which is bilinear in each cell.
  hides([x, y, z], eye) {
    if (this.flat) return false;
    const from = [...this.frame.back(x, y), z + LIFT * this.range];
    const to = [...this.frame.back(eye[0], eye[1]), eye[2]];
    const at = (time) => from.map((start, axis) => start + time * (to[axis] - start));
    const crossed = [this.x, this.y].flatMap((lines, axis) => Array.from(lines, (line) => (line - from[axis]) / (to[axis] - from[axis])));
    const times = [0, ...crossed.filter((time) => time > 0 && time < 1).sort((one, two) => one - two), 1];
    for (const [index, end] of times.slice(1).entries()) {
      const moments = [times[index], (times[index] + end) / 2, end];
      const middle = at(moments[1]);
      const [across, up] = [cell(this.x, middle[0]), cell(this.y, middle[1])];
      if (!across || !up) continue;
      const share = (lines, line, value) => [line, (value - lines[line]) / (lines[line + 1] - lines[line])];
      const [first, half, last] = moments.map(at).map(([atX, atY, height]) =>
        height - inCell(this.heights, this.x.length, share(this.x, across[0], atX), share(this.y, up[0], atY)));
      const [bend, slope] = [first - 2 * half + last, last - first];
      const turn = Math.abs(slope) < 2 * Math.abs(bend) ? half - (slope / (8 * bend)) * slope : half;
      if (Math.min(first, turn, last) < 0 && Math.max(first, turn, last) >= 0) return true;
    }
    return false;
  }
}

const mean = ([low, high]) => (low + high) / 2;

const listed = (points) =>
  Object.fromEntries(["x", "y", "z"].map((name, axis) => [name, points.map((point) => point && point[axis])]));

// The point moved towards the eye, as far as the box of the scene reaches: what lies beyond is not drawn.
function moved(point, { eye, unit, ends }, distance) {
  const way = eye.map((value, axis) => value - point[axis]);
  let share = Math.min(distance / Math.hypot(...way.map((length, axis) => length * unit[axis])), 0.9);
  for (const [axis, length] of way.entries()) {
    const room = (ends[axis][length > 0 ? 1 : 0] - point[axis]) / length;
    if (length && room > 0) share = Math.min(share, 0.995 * room);
  }
  return point.map((value, axis) => value + share * way[axis]);
}

// Where the camera of a drawn scene stands, in the coordinates of its axes, and what a unit of each axis measures there.
function viewOf(plot) {
  const { scene } = plot._fullLayout;
  const { eye } = cameraOf(plot);
  const names = ["x", "y", "z"];
  const ends = names.map((name) => [...scene[`${name}axis`].range].sort((one, two) => one - two));
  const unit = names.map((name, axis) => scene.aspectratio[name] / (ends[axis][1] - ends[axis][0]));
  return { ends, unit, eye: names.map((name, axis) => (ends[axis][0] + ends[axis][1]) / 2 + eye[name] / unit[axis]) };
}
