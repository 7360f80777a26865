// What the threshold decides: counts, costs, and each segment.

// Sums of weights are no numbers of rows, and are not called so.
function isWeighted({ rows, positives, num_positives, num_negatives, curve }) {
  const counts = [...curve.tp, ...curve.fp];
  return num_positives !== positives || num_negatives !== rows - positives || !counts.every(Number.isInteger);
}

const amount = (count) => (Number.isInteger(count) ? whole(count) : number(count));

// The slider walks over the thresholds of the curve; all numbers are exact counts, or sums of weights, at the threshold
// shown.
function sliderCard(label, marks) {
  const { thresholds, tp, fp } = label.curve;
  const rates = curves(label, label.curve);
  const rows = label.num_positives + label.num_negatives;
  const last = thresholds.length - 1;
  const operating = thresholds.indexOf(label.operating.threshold);
  const start = operating < 0 ? Math.floor(last / 2) : last - operating;
  const slider = html("input", { type: "range", id: "threshold", min: 0, max: last, step: 1, value: start });
  const readout = html("output", { for: "threshold" });
  const shown = ["precision", "recall", "false-alarms", "missed"].map((id) => html("data", { id }));
  const now = html("data", { id: "now" });
  const [alarms, found, wrong, missed] = [html("span"), html("span"), html("span"), html("span")];
  const weighted = isWeighted(label);
  const matrix = matrixOf(label, rows, weighted ? "of weight" : "rows");

  // Bounds that hold at all thresholds at once, so that a choice made with the slider is covered.
  function sure(rate, index) {
    const [low, high] = (label.band?.[rate] ?? [[], []]).map((ends) => ends[index] ?? null);
    return low === null || high === null ? "" : `; on new rows ${span([low, high])}`;
  }

  function tell(node, value, format) {
    node.value = value ?? "";
    node.textContent = format(value);
  }

  function show() {
    const index = last - Number(slider.value); // to the right is a higher threshold
    const lost = label.num_positives - tp[index];
    tell(now, thresholds[index], number);
    readout.replaceChildren("score ≥ ", now, index === operating ? " (operating point)" : "");
    slider.setAttribute("aria-valuetext", readout.textContent);
    tell(shown[0], rates.precision[index], percent);
    tell(shown[1], rates.recall[index], percent);
    tell(shown[2], (1000 * fp[index]) / rows, number);
    tell(shown[3], (1000 * lost) / rows, number);
    const of = (part, all) => `${weighted ? "weight " : ""}${amount(part)} of ${amount(all)}`;
    const sum = (count) => (weighted ? `a weight of ${amount(count)} in all` : `${amount(count)} in all`);
    const real = weighted ? "in alarms is real" : "alarms are real";
    const hit = weighted ? "in positives is found" : "positives found";
    alarms.textContent = `${of(tp[index], tp[index] + fp[index])} ${real}${sure("precision", index)}`;
    found.textContent = `${of(tp[index], label.num_positives)} ${hit}${sure("recall", index)}`;
    wrong.textContent = sum(fp[index]);
    missed.textContent = sum(lost);
    matrix.show(tp[index], fp[index], lost, label.num_negatives - fp[index]);
    marks.pr(rates.recall[index], rates.precision[index]);
    marks.roc(rates.fpr[index], rates.recall[index]);
    marks.scores(thresholds[index], null);
  }

  const back = html("button", { type: "button" }, "Back to the operating point");
  back.addEventListener("click", () => { slider.value = start; show(); });
  slider.addEventListener("input", show);
  show();
  const per = `per 1,000 ${weighted ? "of weight" : "rows"}`;
  const titles = ["Precision", "Recall", `False alarms ${per}`, `Missed cases ${per}`];
  const words = [alarms, found, wrong, missed];
  const parts = [html("label", { for: "threshold" }, "Threshold"), slider, readout, operating < 0 ? null : back];
  const covered = label.band
    ? ` The bounds for new rows hold with ${percent(label.band.confidence)} confidence at all thresholds at once.` : "";
  return card("What another threshold would do", `Move it with the mouse or the arrow keys; the charts follow.${covered}`,
    html("div", { class: "slide" }, ...parts), tiles(titles.map((title, tile) => [title, shown[tile], words[tile]])),
    matrix.element);
}

// The confusion matrix, and what its errors cost for every 1,000 of its unit at prices that the reader sets.
function matrixOf({ name, positive, metric }, rows, unit) {
  const cells = ["tp", "fn", "fp", "tn"].map((id) => html("td", { id, class: "number" }));
  const given = /^cost\[fp=([\d.e+-]+),fn=([\d.e+-]+)\]/.exec(metric.name) ?? [null, "1", "1"];
  const price = (id, value) => html("input", { id, type: "number", min: 0, step: "any", value });
  const [falseAlarm, missedCase] = [price("cost-fp", given[1]), price("cost-fn", given[2])];
  const cost = html("data", { id: "cost" });
  let counts = [0, 0, 0, 0];
  const line = (title, ...pair) => html("tr", {}, html("th", { scope: "row" }, title), ...pair);
  const heading = (title) => html("th", { scope: "col", class: "number" }, title);
  const head = [unit === "rows" ? "" : "Weight", "Alarm", "No alarm"].map(heading);
  const grid = html("table", { class: "matrix" }, html("thead", {}, html("tr", {}, ...head)),
    html("tbody", {}, line(classOf(name, positive), cells[0], cells[1]), line("All others", cells[2], cells[3])));

  function tell() {
    const value = (1000 * (falseAlarm.value * counts[2] + missedCase.value * counts[1])) / rows;
    cost.value = value;
    cost.textContent = number(value);
  }

  function show(tp, fp, fn, tn) {
    counts = [tp, fn, fp, tn];
    cells.forEach((cell, index) => { cell.textContent = amount(counts[index]); });
    tell();
  }

  [falseAlarm, missedCase].forEach((input) => input.addEventListener("input", tell));
  const prices = html("div", { class: "prices" }, html("label", { for: "cost-fp" }, "Cost of a false alarm"), falseAlarm,
    html("label", { for: "cost-fn" }, "Cost of a missed case"), missedCase,
    html("span", {}, `Cost per 1,000 ${unit}`), html("strong", {}, cost));
  return { element: html("div", { class: "decisions" }, grid, prices), show };
}

function segmentsTable({ segments, level }) {
  if (!segments) return [];
  const rate = (name) => ({
    title: RATES[name], numeric: true, value: (one) => one[name],
    show: (one) => (one.intervals?.[name] ? `${percent(one[name])} (${span(one.intervals[name])})` : percent(one[name])),
  });
  const columns = [
    { title: "Segment", value: (one) => one.segment },
    { title: "Rows", numeric: true, value: (one) => one.rows, show: (one) => whole(one.rows) },
    { title: "Positives", numeric: true, value: (one) => one.positives, show: (one) => whole(one.positives) },
    ...Object.keys(RATES).map(rate),
  ];
  return [html("h3", { class: "apart" }, "By segment"),
    html("p", { class: "hint" }, `At the operating threshold, with ${percent(level)} intervals.`),
    table("Segments", columns, segments)];
}
