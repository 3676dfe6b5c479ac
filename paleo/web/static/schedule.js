/* Draws schedules: rows of bars that begin anywhere, such as the turns of the stages of a pipeline.
   A series has, beside what charts.js says, starts (where each bar begins) and marks (what is
   written in it where there is room). */
"use strict";

(function () {
  const HEIGHTS = [[8, 26], [16, 19], [Infinity, 13]]; // of up to so many rows, pixels each
  const GAP = 2; // pixels between rows
  const NARROW = 3; // pixels below which bars have no edges: they would be nothing else
  const PAD = 4; // pixels beside a mark
  const BESIDE = 12; // pixels beside the names of rows

  /** Return the bars of all series. */
  function barsOf(chart, colours) {
    return chart.series.flatMap((series, i) =>
      series.x.map((row, j) => ({
        row: String(row), start: series.starts[j], end: series.starts[j] + series.y[j],
        mark: series.marks[j], label: series.labels[j], text: series.texts[j],
        series: series.name, colour: colours[i],
      })),
    );
  }

  /**
   * Return the picture of a schedule.
   * @param {string[]} colours of the series
   * @param {{width: (text: string) => number}} ruler
   */
  function schedule(chart, width, ruler, colours) {
    const bars = barsOf(chart, colours);
    const rows = [...new Set(bars.map(({ row }) => row))];
    const [, row] = HEIGHTS.find(([most]) => rows.length <= most);
    const end = d3.max(bars, (bar) => bar.end);
    const nameOf = (name) => `${chart.x_label} ${name}`;
    const left = Math.ceil(d3.max(rows, (name) => ruler.width(nameOf(name)))) + BESIDE;
    const right = 14;
    const pixels = (width - left - right) / end;
    const typical = d3.median(bars, (bar) => (bar.end - bar.start) * pixels);
    const edge = typical < NARROW ? 0 : 0.5;
    const marked = bars.filter(({ mark, start, end: until }) =>
      mark && (until - start) * pixels >= ruler.width(mark) + PAD);
    const middle = (bar) => (bar.start + bar.end) / 2;
    const said = ({ label, series, row: name, start, text }) =>
      [`${series}${label ? `, ${label}` : ""}`, nameOf(name),
        `${chart.y_label}: ${text}, from ${d3.format(",.3~r")(start)}`].join("\n");
    return Plot.plot({
      width,
      height: rows.length * row + 46,
      marginLeft: left,
      marginRight: right,
      marginTop: 8,
      marginBottom: 38,
      x: { domain: [0, end], label: chart.y_label, labelArrow: "none", labelAnchor: "right", grid: true,
        ticks: width > 500 ? 8 : 4, tickFormat: (value) => d3.format(",.3~r")(value) },
      y: { type: "band", domain: rows, label: null, tickSize: 0, padding: GAP / row, tickFormat: nameOf },
      color: { type: "identity" },
      marks: [
        Plot.barX(bars, { x1: "start", x2: "end", y: "row", fill: "colour", insetLeft: edge, insetRight: edge }),
        ...(row >= 15
          ? [Plot.text(marked, { x: middle, y: "row", text: "mark", fill: "var(--panel)", fontSize: 10.5 })]
          : []),
        Plot.tip(bars, Plot.pointer({ x: middle, y: "row", title: said, maxRadius: 40 })),
      ],
    });
  }

  Paleo.schedule = schedule;
})();
