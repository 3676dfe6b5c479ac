/* Draws the charts of answers by Observable Plot. Values and units are the chart's own: here is
   only where things go. A chart is {key, kind, title, setting, x_label, y_label, series, log_x,
   log_y, notes, others, others_scale}; a series {name, x, y, texts, labels, is_reference, chosen,
   look, low, high, outline, is_shaded}, texts being y to read, chosen why it is the one to look at
   ("": it is not), look the number of its colour, low and high the ends of its error band, if it
   has one, outline the corners of that, is_shaded whether that is drawn. The last bar is the sum of
   others, if there are any, drawn at others_scale. */
"use strict";

(function () {
  /** What tells series apart, beside their colours (--s0 to --s5 of the style sheet). */
  const DASHES = ["8 3", "2 3", "none", "10 3 2 3", "14 4", "4 2"];
  const SYMBOLS = ["circle", "square", "triangle", "diamond", "cross", "star"];
  const SYMBOL_SHAPES = {
    circle: d3.symbolCircle,
    square: d3.symbolSquare,
    triangle: d3.symbolTriangle,
    diamond: d3.symbolDiamond,
    cross: d3.symbolCross,
    star: d3.symbolStar,
  };
  const MARKED = "var(--line)";
  const REFERENCE = { color: "var(--reference)", dash: "5 4", symbol: null };
  /** Of marks across bars, as in pictures: the first, such as a peak, is solid, a limit dashed. */
  const REFERENCE_DASHES = ["none", "6 2.5"];
  const BARS = ["bars", "columns", "schedule"];
  /** Those of lines: several side by side have one legend. */
  const LINES = ["lines", "curves"];
  const WIDE = 9; // pixels of a mark below curves
  const SVG = "http://www.w3.org/2000/svg";
  const TALL = 800; // pixels from which on a chart scrolls (.tall.scrolls)
  const ROW = 17; // pixels of a bar and the gap below it
  const BESIDE = 14; // pixels beside the names of bars
  const MARK = 5; // pixels from the middle of a point to its edge
  const LINE = 13; // pixels of a line of text

  const NAMED = 12; // names of points that are written
  const TRIED = 500; // points of a series that may have their names written
  const NEAR = 4; // pixels between points of which both may be named
  const MANY = 100; // points from which on they are smaller, so that fewer are hidden
  const TICKS = 7; // numbers at a logarithmic axis
  const LEAST = 3; // and no fewer
  const STRONG = 3.5; // pixels of the line to look at
  const THIN = 1.5; // and of others
  const SOLID = "none";

  const figures = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const shown = (value) => (typeof value === "number" ? figures.format(value) : String(value));

  /** Return how to draw each series. The line to look at has no gaps, so no other is without. */
  function looks(chart) {
    const dashOf = (series) => DASHES[series.look % DASHES.length];
    const chosen = chart.series.find((series) => series.chosen);
    return chart.series.map((series) => {
      if (series.is_reference) return REFERENCE;
      const index = series.look % DASHES.length;
      const look = { color: `var(--s${index})`, dash: DASHES[index], symbol: SYMBOLS[index], width: 1.75 };
      if (!chosen) return look;
      if (series === chosen) return { ...look, dash: SOLID, width: STRONG };
      return { ...look, dash: look.dash === SOLID ? dashOf(chosen) : look.dash, width: THIN, opacity: 0.75 };
    });
  }

  function points(series) {
    const ends = series.low ? { low: series.low, high: series.high } : null;
    return series.x
      .map((x, i) => ({
        x, y: series.y[i], text: series.texts[i], label: series.labels[i] || "", series: series.name,
        low: ends && ends.low[i], high: ends && ends.high[i],
      }))
      .filter((point) => point.y !== null);
  }

  const hasBand = ({ low, high }) => typeof low === "number" && typeof high === "number";

  function tipOf(chart, point) {
    const lines = point.label && point.label !== point.series ? [point.label] : [];
    lines.push(point.series);
    lines.push(`${chart.x_label}: ${shown(point.x)}`, `${chart.y_label}: ${point.text}`);
    if (hasBand(point)) lines.push(`error band: ${shown(point.low)} to ${shown(point.high)}`);
    return lines.join("\n");
  }

  /** Return the numbers to write at an axis: of the powers and others, those that have room. */
  function ticks(chart, width) {
    const all = [...new Set(chart.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    if (!chart.log_x || all.length < 2) return all;
    const scale = d3.scaleLog([all[0], all[all.length - 1]], [0, width - 70]);
    const kept = [];
    const fits = (x) => kept.every((other) => Math.abs(scale(other) - scale(x)) > 26);
    for (const x of [all[0], all[all.length - 1], ...all]) if (fits(x)) kept.push(x);
    return kept.sort((a, b) => a - b);
  }

  /** Return round numbers for a logarithmic axis, so few that each can be written. */
  function decades(values, most) {
    const [low, high] = d3.extent(values.filter((value) => value > 0));
    if (low === undefined) return [];
    const powers = d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1);
    const among = (digits, step) =>
      powers
        .filter((power) => power % step === 0)
        .flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`)))
        .filter((value) => value >= low && value <= high);
    for (const digits of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3]]) {
      const found = among(digits, 1);
      if (found.length >= LEAST && found.length <= most) return found;
    }
    const step = powers.map((_, i) => i + 1).find((each) => among([1], each).length <= most);
    const found = among([1], step);
    return found.length >= LEAST ? found : d3.ticks(low, high, 6);
  }

  function axes(chart) {
    const ends = (series) => (series.is_shaded ? series.outline.map(([, y]) => y) : []);
    const ys = chart.series.flatMap((series) => [...series.y, ...ends(series)]);
    return {
      x: { type: chart.log_x ? "log" : "linear", label: chart.x_label, labelArrow: "none" },
      y: {
        type: chart.log_y ? "log" : "linear",
        label: chart.y_label,
        labelArrow: "none",
        grid: true,
        zero: !chart.log_y,
        tickFormat: shown,
        ticks: chart.log_y ? decades(ys, TICKS) : 6,
      },
    };
  }

  /** Return the marks that write all these numbers: Plot leaves some of a logarithmic axis out. */
  function written(chart, xs, ys) {
    const axis = (make, at) => make(at, { text: at.map(shown), labelArrow: "none" });
    return [
      ...(chart.log_x ? [axis(Plot.axisX, xs)] : []),
      ...(chart.log_y ? [axis(Plot.axisY, ys)] : []),
    ];
  }

  function lineMarks(chart) {
    const styles = looks(chart);
    const order = chart.series.map((_, i) => i).sort((a, b) => rank(chart, a) - rank(chart, b));
    return order.flatMap((i) => {
      const series = chart.series[i];
      const { color, dash, symbol, width, opacity } = styles[i];
      const data = points(series);
      const line = Plot.line(data, {
        x: "x", y: "y", stroke: color, strokeWidth: width || THIN, strokeDasharray: dash, opacity,
      });
      if (!symbol) return [line];
      const size = series.chosen ? 4.5 : 3.25;
      const dots = Plot.dot(data, { x: "x", y: "y", fill: color, symbol, r: size, opacity });
      return [...band(series, color), line, dots];
    });
  }

  /** Return the mark that shades the error band of a line. */
  function band(series, color) {
    const data = series.is_shaded ? points(series).filter(hasBand) : [];
    if (!data.length) return [];
    return [Plot.areaY(data, { x: "x", y1: "low", y2: "high", fill: color, fillOpacity: 0.15 })];
  }

  /** References lie below, the chosen series above. */
  function rank(chart, index) {
    const { is_reference: reference, chosen } = chart.series[index];
    return reference ? -1 : chosen ? 1 : 0;
  }

  function tips(chart) {
    const all = chart.series.filter((series) => !series.is_reference).flatMap(points);
    return Plot.tip(all, Plot.pointer({ x: "x", y: "y", title: (d) => tipOf(chart, d), maxRadius: 60 }));
  }

  function lines(chart, width, { marked }) {
    const { x, y } = axes(chart);
    const at = ticks(chart, width);
    const base = chart.log_x ? { base: 2 } : {};
    const rule = marked === null ? [] : [Plot.ruleX([marked], { stroke: "var(--mark)" })];
    return Plot.plot({
      width,
      height: 280,
      marginLeft: 48,
      marginTop: 28,
      marginBottom: 42,
      x: { ...x, ...base, ticks: at, tickFormat: shown },
      y,
      marks: [...written(chart, at, y.ticks), ...rule, ...lineMarks(chart), tips(chart)],
    });
  }

  function scatter(chart, width, how) {
    const styles = looks(chart);
    const radius = d3.sum(chart.series, (series) => series.x.length) < MANY ? 4.5 : 3;
    const marks = chart.series.map((series, i) => {
      const { color, dash, symbol } = styles[i];
      const place = { x: "x", y: "y" };
      if (!symbol) {
        return Plot.line(points(series), { ...place, stroke: color, strokeDasharray: dash, strokeWidth: 2 });
      }
      return Plot.dot(points(series), {
        ...place, stroke: color, fill: color, fillOpacity: 0.35, symbol, r: radius,
      });
    });
    return plane(chart, width, how, marks, chart.series.filter((series) => series.is_reference));
  }

  /** Lines through named points in their order; points of references are marked below them. */
  function curves(chart, width, how) {
    const styles = looks(chart);
    const order = chart.series.map((_, i) => i).sort((a, b) => rank(chart, a) - rank(chart, b));
    const marks = order.flatMap((i) => {
      const series = chart.series[i];
      const { color, dash, symbol } = styles[i];
      const [data, place] = [points(series), { x: "x", y: "y" }];
      if (!symbol) {
        const wide = { ...place, stroke: MARKED, strokeWidth: WIDE, strokeLinecap: "round" };
        return [Plot.line(data, wide), Plot.dot(data, { ...place, fill: MARKED, r: 0.8 * WIDE })];
      }
      const shade = series.is_shaded
        ? [Plot.line(series.outline, { curve: "linear-closed", stroke: "none", fill: color, fillOpacity: 0.15 })]
        : [];
      const line = Plot.line(data, { ...place, stroke: color, strokeWidth: 1.75, strokeDasharray: dash });
      return [...shade, line, Plot.dot(data, { ...place, fill: color, symbol, r: 3.75 })];
    });
    return plane(chart, width, { ...how, repeats: true }, marks, chart.series);
  }

  /** Numbers over numbers, with names at points that meet none of these `joined` ones. */
  function plane(chart, width, { ruler, repeats }, marks, joined) {
    const { x, y } = axes(chart);
    const xs = chart.series.flatMap((series) => series.x);
    const at = chart.log_x ? decades(xs, width > 500 ? 8 : 6) : width > 500 ? 8 : 4;
    const inset = repeats ? 20 : 8; // where each point has a name, those at the ends need room
    const svg = Plot.plot({
      width,
      height: 340,
      inset,
      marginLeft: 56,
      marginTop: 28,
      marginBottom: 42,
      x: { ...x, tickFormat: shown, ticks: at, grid: true },
      y,
      marks: [...written(chart, at, y.ticks), ...marks, tips(chart)],
    });
    nameFirst(svg, chart, width, { ruler, joined, repeats, inset });
    return svg;
  }

  /**
   * Write the names of the first points of each series where there is room and no line of those
   * that are `joined`; none twice, but where one `repeats` in another series.
   */
  function nameFirst(svg, chart, width, { ruler, joined, repeats, inset }) {
    const at = (name, value) => svg.scale(name).apply(value);
    const own = chart.series.filter((series) => !series.is_reference).map(points);
    const boxes = own.flat().map(({ x, y }) => around(at("x", x), at("y", y), MARK, MARK));
    for (const roof of joined) {
      const corners = points(roof).map(({ x, y }) => [at("x", x), at("y", y)]);
      for (const [from, to] of d3.pairs(corners)) boxes.push(...along(from, to));
    }
    const [bottom, top] = svg.scale("y").range;
    const [left, right] = svg.scale("x").range;
    const edge = repeats ? inset : 0;
    const frame = { left: left - edge, right: Math.min(right + MARK + edge, width),
      top: top - MARK - edge, bottom: bottom + MARK + edge };
    const first = d3.range(TRIED).flatMap((i) => own.map((all) => all[i]).filter(Boolean));
    const named = new Set();
    const tried = [];
    for (const { x, y, label, series } of first) {
      const key = repeats ? `${series}\n${label}` : label;
      if (named.size === (repeats ? TRIED : NAMED)) break;
      const [px, py] = [at("x", x), at("y", y)];
      const near = ([ox, oy]) => Math.abs(ox - px) < NEAR && Math.abs(oy - py) < NEAR;
      if (!label || named.has(key) || tried.some(near)) continue;
      tried.push([px, py]);
      const found = placed(px, py, ruler.width(label), frame, boxes);
      if (!found) continue;
      named.add(key);
      boxes.push(found);
      const text = document.createElementNS(SVG, "text");
      text.setAttribute("class", "name");
      text.setAttribute("x", (found.left + found.right) / 2);
      text.setAttribute("y", (found.top + found.bottom) / 2);
      text.textContent = label;
      svg.append(text);
    }
  }

  /** Return the box of a name beside a point that meets no other box, if there is such a place. */
  function placed(x, y, size, frame, boxes) {
    const [across, up] = [size / 2 + MARK + 2, LINE / 2 + MARK + 1];
    const steps = [[-1, 0], [1, 0], [0, -1], [0, 1], [-1, -1], [1, -1], [-1, 1], [1, 1]];
    return steps
      .map(([right, down]) => around(x + right * across, y + down * up, size / 2, LINE / 2))
      .find((box) => box.left >= frame.left && box.right <= frame.right && box.top >= frame.top &&
        box.bottom <= frame.bottom && !boxes.some((other) => meet(box, other)));
  }

  /** Return small boxes along a line, where no name is to stand. */
  function along([x, y], [toX, toY]) {
    const steps = Math.ceil(Math.max(Math.abs(toX - x), Math.abs(toY - y)) / NEAR) || 1;
    return d3.range(steps + 1).map((i) =>
      around(x + ((toX - x) * i) / steps, y + ((toY - y) * i) / steps, NEAR / 2, NEAR / 2));
  }

  function around(x, y, half, height) {
    return { left: x - half, right: x + half, top: y - height, bottom: y + height };
  }

  function meet(one, other) {
    return one.left < other.right && other.left < one.right && one.top < other.bottom &&
      other.top < one.bottom;
  }

  function bars(chart, width, { ruler, alone }) {
    const styles = looks(chart);
    const own = chart.series.filter((series) => !series.is_reference);
    const names = [...new Set(own.flatMap((series) => series.x))];
    const written = alone ? new Map() : Paleo.shorten(names.map(String), nameRoom(width), ruler);
    const longest = d3.max(written.values(), (name) => ruler.width(name));
    const last = chart.others ? names[names.length - 1] : undefined;
    const scale = (point) => (point.x === last ? chart.others_scale : 1);
    const data = own.flatMap((series) =>
      points(series).map((point) => (
        { ...point, y: point.y * scale(point), label: alone ? "" : String(point.x) })),
    );
    const fill = new Map(chart.series.map((series, i) => [series.name, styles[i].color]));
    const stack = Plot.stackX({
      y: "x", x: "y", z: "series", order: own.map((series) => series.name),
      fill: (d) => fill.get(d.series), insetTop: 1, insetBottom: 1,
    });
    const text = (d) => `${d.label ? `${d.label}\n` : ""}${d.series}: ${d.text}\n${chart.y_label}`;
    const references = chart.series.filter((series) => series.is_reference);
    return Plot.plot({
      width,
      height: alone ? 84 : names.length * ROW + 62,
      marginLeft: alone ? 4 : Math.ceil(longest) + BESIDE,
      marginTop: alone ? 8 : 34,
      marginRight: 24,
      marginBottom: alone ? 42 : 28,
      x: { label: chart.y_label, labelArrow: "none", tickFormat: shown, axis: alone ? "bottom" : "top",
        ticks: width > 500 ? 8 : 4, grid: true, zero: true, nice: true, labelAnchor: alone ? "right" : "left" },
      y: { label: null, domain: names, axis: alone ? null : "left", tickSize: 0,
        tickFormat: (name) => written.get(String(name)) },
      color: { type: "identity" },
      marks: [
        Plot.barX(data, stack),
        ...references.map((series, i) => referenceBar(series, REFERENCE_DASHES[i % 2])),
        ...brokenOff(chart, data.filter((point) => point.x === last)),
        Plot.ruleX([0], { stroke: "var(--axis)" }),
        Plot.tip(data, Plot.pointerY({ ...stack, fill: undefined, title: text, maxRadius: 40 })),
      ],
    });
  }

  /** Return the marks that say that the bar of the others goes on, with where it ends in truth. */
  function brokenOff(chart, others) {
    if (chart.others_scale === 1) return [];
    const end = [{ x: others[0].x, y: d3.sum(others, (point) => point.y) }];
    const text = figures.format(end[0].y / chart.others_scale);
    const place = { x: "y", y: "x" };
    return [
      Plot.text(end, { ...place, text: ["\u2571\u2571"], dx: -12, fill: "var(--panel)", fontWeight: 900 }),
      Plot.text(end, { ...place, text: [text], dx: 4, textAnchor: "start", fill: "var(--text)" }),
    ];
  }

  /** Upright bars over numbers, one series stacked on the other, below the whole with its band. */
  function columns(chart, width, { marked }) {
    const styles = looks(chart);
    const own = chart.series.filter((series) => !series.is_reference);
    const wholes = chart.series.filter((series) => series.is_reference).flatMap(points);
    const fill = new Map(chart.series.map((series, i) => [series.name, styles[i].color]));
    const stack = Plot.stackY({
      x: "x", y: "y", z: "series", order: own.map((series) => series.name),
      fill: (d) => fill.get(d.series), insetLeft: 1, insetRight: 1,
    });
    const xs = [...new Set(chart.series.flatMap((series) => series.x))];
    const every = Math.ceil((xs.length * 30) / (width - 70));
    const ends = wholes.filter(hasBand);
    const stroke = "var(--strong)";
    return Plot.plot({
      width, height: 280, marginLeft: 48, marginTop: 28, marginBottom: 42,
      x: { type: "band", domain: xs, label: chart.x_label, labelArrow: "none", tickSize: 0,
        ticks: xs.filter((_, i) => i % every === 0), tickFormat: shown, padding: 0.15 },
      y: { label: chart.y_label, labelArrow: "none", grid: true, zero: true, tickFormat: shown, ticks: 6 },
      color: { type: "identity" },
      marks: [
        Plot.barY(own.flatMap(points), stack),
        Plot.tickY(wholes, { x: "x", y: "y", stroke, strokeWidth: (d) => (d.x === marked ? 3.5 : 1.5) }),
        Plot.ruleX(ends, { x: "x", y1: "low", y2: "high", stroke, strokeWidth: 1.25 }),
        Plot.ruleY([0], { stroke: "var(--axis)" }),
        Plot.tip([...own.flatMap(points), ...wholes],
          Plot.pointerX({ x: "x", y: "y", title: (d) => tipOf(chart, d), maxRadius: 60 })),
      ],
    });
  }

  /** Return how wide the names of bars may be: they leave room for the bars. */
  function nameRoom(width) {
    return Math.max(90, Math.min(300, 0.55 * width));
  }

  function referenceBar(series, dash) {
    return Plot.tickX(points(series), {
      x: "y", y: "x", stroke: "var(--strong)", strokeWidth: 2.5, strokeDasharray: dash,
    });
  }

  /** Return the sample of a series in a legend. */
  function sample(kind, look) {
    const svg = document.createElementNS(SVG, "svg");
    const width = look.symbol && !LINES.includes(kind) ? 14 : 34;
    for (const [name, value] of Object.entries({ width, height: 14, "aria-hidden": "true" })) {
      svg.setAttribute(name, value);
    }
    const add = (tag, attributes) => {
      const part = document.createElementNS(SVG, tag);
      for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, value);
      svg.append(part);
    };
    if (BARS.includes(kind) && look.symbol) {
      add("rect", { x: 0, y: 1, width: 14, height: 12, fill: look.color });
      return svg;
    }
    if (kind === "curves" && !look.symbol) {
      add("line", { x1: 6, x2: 28, y1: 7, y2: 7, stroke: MARKED, "stroke-width": WIDE, "stroke-linecap": "round" });
      return svg;
    }
    if (kind !== "points" || !look.symbol) {
      add("line", { x1: 1, x2: 33, y1: 7, y2: 7, stroke: look.color, "stroke-width": look.width || 2,
        "stroke-dasharray": look.dash });
    }
    if (look.symbol) {
      const shape = d3.symbol(SYMBOL_SHAPES[look.symbol], 42)();
      add("path", { d: shape, transform: `translate(${width / 2},7)`, fill: look.color });
    }
    return svg;
  }

  const titleOf = (series) => series.name + (series.chosen ? ` (${series.chosen})` : "");

  function legend(chart) {
    const styles = looks(chart);
    if (BARS.includes(chart.kind)) {
      let found = 0;
      for (const [i, series] of chart.series.entries()) {
        if (!series.is_reference) continue;
        styles[i] = { ...REFERENCE, color: "var(--strong)", dash: REFERENCE_DASHES[found % 2] };
        found += 1;
      }
    }
    const items = chart.series.map((series, i) =>
      Paleo.el(
        "li",
        { class: series.chosen ? "chosen" : null },
        sample(chart.kind, styles[i]),
        titleOf(series),
      ),
    );
    return Paleo.el("ul", { class: "legend" }, ...items);
  }

  function said(chart) {
    const names = chart.series.map(titleOf);
    if (chart.kind === "schedule") {
      const what = `what each ${chart.x_label} does over ${chart.y_label}`;
      return `${chart.title}: ${what}: ${names.join(", ")}. ${chart.setting}. ${chart.notes.join(". ")}.`;
    }
    const axesSaid = BARS.includes(chart.kind)
      ? `bars of ${chart.y_label} by ${chart.x_label}`
      : `${chart.y_label} against ${chart.x_label}`;
    return `${chart.title}: ${axesSaid}, for ${names.join(", ")}. ${chart.setting}.`;
  }

  const schedule = (chart, width, { ruler }) =>
    Paleo.schedule(chart, width, ruler, looks(chart).map(({ color }) => color));
  const DRAWN = { lines, points: scatter, bars, columns, schedule, curves };

  /** The figures of one parent: lines of several have one legend, above them all. */
  class Group {
    constructor(parent) {
      this.root = Paleo.el("div", { class: "of-group", hidden: true });
      this.figures = [];
      parent.before(this.root);
    }

    update() {
      const own = this.figures.filter(({ chart }) => chart && LINES.includes(chart.kind));
      const shared = own.length > 1;
      for (const figure of this.figures) figure.legend.hidden = shared && own.includes(figure);
      this.root.hidden = !shared;
      if (!shared) return;
      const all = own.flatMap(({ chart }) => chart.series).map((series) => [series.name, series]);
      const series = [...new Map(all).values()];
      this.root.replaceChildren(legend({ ...own[0].chart, series }));
    }
  }

  const groups = new Map();

  /** A figure that shows one chart after another, as wide as there is room. */
  class Figure {
    /**
     * @param {HTMLElement} parent
     * @param {{table?: string, alone?: boolean}} [options] `table` is the id of the table that has
     *     the same numbers; with `alone`, bars are one that needs no name
     */
    constructor(parent, options) {
      this.options = options || {};
      this.caption = Paleo.el("figcaption", {});
      this.legend = Paleo.el("div", {});
      this.picture = Paleo.el("div", {
        class: "picture", role: "img", "aria-describedby": this.options.table,
      });
      this.notes = Paleo.el("ul", { class: "notes small" });
      this.scroller = Paleo.el("div", { class: "tall" }, this.picture);
      this.figure = Paleo.el(
        "figure", { class: "chart", hidden: true }, this.caption, this.legend, this.scroller, this.notes,
      );
      parent.append(this.figure);
      if (!groups.has(parent)) groups.set(parent, new Group(parent));
      this.group = groups.get(parent);
      this.group.figures.push(this);
      this.width = 0;
      new ResizeObserver(() => this._resize()).observe(this.figure);
    }

    /**
     * Show a chart; null hides the figure.
     * @param {number|null} [marked] an x to mark
     */
    show(chart, marked) {
      this.chart = chart;
      this.marked = marked === undefined ? null : marked;
      this.figure.hidden = chart === null || chart === undefined;
      this.group.update();
      if (this.figure.hidden) return;
      this.figure.dataset.key = chart.key;
      this.caption.textContent = chart.title;
      this.caption.title = chart.setting;
      const bare = chart.series.length === 1 && chart.kind === "bars";
      this.legend.replaceChildren(...(bare ? [] : [legend(chart)]));
      this.picture.setAttribute("aria-label", said(chart));
      Paleo.list(this.notes, chart.notes);
      this._draw();
    }

    _resize() {
      const width = this.figure.clientWidth;
      if (width !== this.width && this.chart) this._draw();
    }

    _draw() {
      this.width = this.figure.clientWidth;
      const style = getComputedStyle(this.figure);
      const width = this.width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      if (width < 50) return; // not on the screen
      const { fontSize, fontFamily } = getComputedStyle(this.picture);
      const font = `${fontSize} ${fontFamily}`;
      if (!this.ruler || this.ruler.font !== font) this.ruler = new Paleo.Ruler(font);
      const { marked, ruler } = this;
      const how = { marked, ruler, alone: this.options.alone };
      const svg = DRAWN[this.chart.kind](this.chart, Math.floor(width), how);
      svg.setAttribute("aria-hidden", "true");
      this.picture.replaceChildren(svg);
      this._scroll(svg);
    }

    /** What is higher than there is room for scrolls, by the keyboard, too. */
    _scroll(svg) {
      const tall = Number(svg.getAttribute("height")) > TALL;
      this.scroller.classList.toggle("scrolls", tall);
      for (const [name, value] of Object.entries({
        tabindex: "0", role: "region", "aria-label": `${this.chart.title}, scrolls`,
      })) {
        if (tall) this.scroller.setAttribute(name, value);
        else this.scroller.removeAttribute(name);
      }
    }
  }

  Paleo.Figure = Figure;
})();
