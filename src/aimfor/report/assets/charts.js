"use strict";
// Charts as SVG. They are drawn anew when their size changes, so that text keeps its own; their colours come from the
// style sheet, so that they follow light and dark. Texts only ever become text nodes or attributes.

function make(space, name, attributes, children) {
  const node = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
const html = (name, attributes = {}, ...children) => make("http://www.w3.org/1999/xhtml", name, attributes, children);
const svg = (name, attributes = {}, ...children) => make("http://www.w3.org/2000/svg", name, attributes, children);

// As the sentence on top writes it: near 1 the distance from it counts. What is not known is a dash.
const percent = (share) => (share == null ? "–" : `${Number((100 * share).toPrecision(share < 0.99 ? 3 : 5))} %`);
const number = (value) =>
  value == null ? "–" : Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 20 });

const MARGIN = { left: 60, right: 14, top: 10, bottom: 42 };

// From data to pixels. A logarithmic axis puts what lies below its low end at that end, zeros too.
function scale(axis, start, end) {
  const move = axis.log ? (value) => Math.log10(Math.max(value, axis.low)) : (value) => value;
  const low = move(axis.low);
  const length = move(axis.high) - low || 1;
  return (value) => start + ((move(value) - low) / length) * (end - start);
}

function ticks(axis, count) {
  const range = (first, last) => Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  if (axis.log) {
    const [first, last] = [Math.ceil(Math.log10(axis.low) - 1e-9), Math.floor(Math.log10(axis.high) + 1e-9)];
    return range(first, last).map((power) => 10 ** power);
  }
  const least = (axis.high - axis.low) / count || 1;
  const unit = 10 ** Math.floor(Math.log10(least));
  const step = unit * ([1, 2, 5].find((factor) => factor * unit >= least * 0.999) ?? 10);
  const [first, last] = [Math.ceil(axis.low / step - 1e-9), Math.floor(axis.high / step + 1e-9)];
  return range(first, last).map((index) => Number((index * step).toPrecision(12)));
}

// The axis that holds all values, with some room at both ends.
function around(values, title) {
  const low = values.reduce((one, other) => Math.min(one, other));
  const high = values.reduce((one, other) => Math.max(one, other));
  const room = high > low ? (high - low) * 0.05 : Math.abs(low) * 0.1 || 1;
  return { title, low: low - room, high: high + room, format: number };
}

// spec: label for screen readers, axes x and y as {title, low, high, format, log}, and what to draw, each with a kind
// that names its colour: lines {name, kind, points}, bars {kind, edges, heights}, spots {name, kind, x, y, xs, ys} with
// intervals xs and ys. Gives the element, and mark(x, y), which moves the marker; y null makes it a vertical line.
function chart({ label, x: across, y: up, lines = [], bars = [], spots = [] }) {
  const box = html("div", { class: "chart" });
  const marker = svg("g");
  let marked = null;
  let x, y, width, height;

  function draw() {
    [width, height] = [box.clientWidth, box.clientHeight];
    x = scale(across, MARGIN.left, width - MARGIN.right);
    y = scale(up, height - MARGIN.bottom, MARGIN.top);
    const parts = [axes(), ...bars.flatMap(drawBars), ...lines.map(drawLine), ...spots.map(drawSpot), marker];
    box.replaceChildren(svg("svg", { width, height, role: "img", "aria-label": label }, ...parts));
    drawMarker();
  }

  function axes() {
    const group = svg("g");
    const [bottom, right] = [height - MARGIN.bottom, width - MARGIN.right];
    const text = (words, attributes) => group.append(svg("text", { "text-anchor": "middle", ...attributes }, words));
    for (const tick of ticks(across, width < 360 ? 4 : 6)) {
      const at = x(tick);
      group.append(svg("line", { class: "tick", x1: at, x2: at, y1: MARGIN.top, y2: bottom }));
      text(across.format(tick), { x: Math.min(at, width - 22), y: bottom + 17 });
    }
    for (const tick of ticks(up, 5)) {
      const at = y(tick);
      group.append(svg("line", { class: "tick", x1: MARGIN.left, x2: right, y1: at, y2: at }));
      text(up.format(tick), { x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" });
    }
    text(across.title, { x: (MARGIN.left + right) / 2, y: height - 6 });
    text(up.title, { transform: `translate(12 ${(MARGIN.top + bottom) / 2}) rotate(-90)` });
    return group;
  }

  function drawLine({ kind, points }) {
    if (points.length === 1) return drawSpot({ kind, x: points[0][0], y: points[0][1] });
    const path = points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ");
    return svg("polyline", { class: `line ${kind}`, points: path });
  }

  function drawBars({ kind, edges, heights }) {
    return heights.map((value, bin) => {
      const [left, top] = [x(edges[bin]), y(value)];
      const size = { width: Math.max(0.5, x(edges[bin + 1]) - left - 0.5), height: Math.max(0, y(0) - top) };
      return svg("rect", { class: `bar ${kind}`, x: left, y: top, ...size });
    });
  }

  function drawSpot({ kind, x: at, y: value, xs, ys }) {
    const [cx, cy] = [x(at), y(value)];
    const group = svg("g");
    if (xs) group.append(svg("line", { class: `cross ${kind}`, x1: x(xs[0]), x2: x(xs[1]), y1: cy, y2: cy }));
    if (ys) group.append(svg("line", { class: `cross ${kind}`, x1: cx, x2: cx, y1: y(ys[0]), y2: y(ys[1]) }));
    group.append(svg("circle", { class: `spot ${kind}`, cx, cy, r: kind === "other" ? 2.5 : 4.5 }));
    return group;
  }

  function drawMarker() {
    if (!x || !marked) return;
    const [at, value] = marked;
    const inside = at !== null && at >= across.low && at <= across.high;
    const ends = { y1: MARGIN.top, y2: height - MARGIN.bottom };
    const line = () => svg("line", { class: "marker", x1: x(at), x2: x(at), ...ends });
    const ring = () => svg("circle", { class: "marker", cx: x(at), cy: y(value), r: 8 });
    marker.replaceChildren(...(inside ? [value === null ? line() : ring()] : []));
  }

  // The point nearest to the pointer, in words.
  function tell(event) {
    let [best, distance] = [null, 24 ** 2];
    const named = [...spots.map((spot) => ({ name: spot.name, points: [[spot.x, spot.y]] })), ...lines];
    for (const { name, points } of named.filter((one) => one.name)) {
      for (const point of points) {
        const away = (x(point[0]) - event.offsetX) ** 2 + (y(point[1]) - event.offsetY) ** 2;
        if (away < distance) [best, distance] = [{ name, point }, away];
      }
    }
    hide();
    if (!best) return;
    const [at, value] = best.point;
    const words = `${best.name}\n${across.title}: ${across.format(at)}\n${up.title || "Value"}: ${up.format(value)}`;
    const tip = box.appendChild(html("div", { class: "tip" }, words));
    tip.style.left = `${Math.max(0, Math.min(x(at) + 10, width - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, y(value) - tip.offsetHeight - 10)}px`;
  }

  const hide = () => box.querySelector(".tip")?.remove();
  box.addEventListener("pointermove", tell);
  box.addEventListener("pointerleave", hide);
  new ResizeObserver(draw).observe(box);
  return { element: box, mark: (at, value) => { marked = [at, value]; drawMarker(); } };
}

// entries: pairs of a kind and its text; the first word of the kind is the shape.
function legend(entries) {
  const shapes = {
    bar: (kind) => svg("rect", { class: kind, width: 22, height: 10 }),
    line: (kind) => svg("line", { class: kind, x2: 22, y1: 5, y2: 5 }),
    marker: (kind) => svg("circle", { class: kind, cx: 11, cy: 5, r: 4 }),
    spot: (kind) => svg("circle", { class: kind, cx: 11, cy: 5, r: 4 }),
  };
  const items = entries.map(([kind, text]) => {
    const shape = shapes[kind.split(" ")[0]](kind);
    return html("li", {}, svg("svg", { viewBox: "0 0 22 10", "aria-hidden": "true" }, shape), text);
  });
  return html("ul", { class: "legend" }, ...items);
}

// Curves in the unit square, small enough for a row of a table.
function spark(label, lines, spots) {
  const at = ([across, up]) => [2 + across * 92, 28 - up * 26];
  const drawn = lines.map(({ kind, points }) => {
    const stride = Math.ceil(points.length / 60);
    const path = points.filter((_, index) => index % stride === 0).map(at).join(" ");
    return svg("polyline", { class: `line ${kind}`, points: path });
  });
  const dots = spots.map(({ x, y }) => svg("circle", { class: "spot", cx: at([x, y])[0], cy: at([x, y])[1], r: 3 }));
  return svg("svg", { class: "spark", viewBox: "0 0 96 30", role: "img", "aria-label": label }, ...drawn, ...dots);
}
