// What the page shows, built from the facts that stand in it as JSON.

const facts = JSON.parse(document.getElementById("facts").textContent);
const section = (name) => document.getElementById(name);
const RATES = { precision: "Precision", recall: "Recall", fpr: "False-positive rate" };
// Other rates are named as the aim names them.
const titleOf = (rate) => RATES[rate] ?? rate[0].toUpperCase() + rate.slice(1);
const share = (title) => ({ title, low: 0, high: 1, format: percent });
// Of several classes, each is a label with the name of its class.
const classOf = (name, positive) => (name === positive ? positive : `${name} = ${positive}`);
const whole = (value) => (value == null ? "–" : value.toLocaleString("en"));
const ratio = (part, rest) => (part + rest > 0 ? part / (part + rest) : null);
const span = ([low, high]) => `${percent(low).replace(" %", "")} to ${percent(high)}`;

function card(title, hint, ...children) {
  const words = hint ? html("p", { class: "hint" }, hint) : null;
  return html("div", { class: "card" }, html("h3", {}, title), words, ...children);
}

// entries: title, what is shown (text or nodes), and a word on it.
function tiles(entries) {
  const items = entries.map(([title, shown, more]) =>
    html("div", {}, html("dt", {}, title), html("dd", {}, shown, html("small", {}, more))));
  return html("dl", { class: "tiles" }, ...items);
}

// columns: {title, value(row), show(row), numeric, wrap}; it sorts by value. pick(row) makes rows choosable.
function table(name, columns, rows, { chosen = () => false, pick = null } = {}) {
  const body = html("tbody");
  const headers = columns.map((column) => html("th", { scope: "col", class: column.numeric ? "number" : null }));
  let [sorted, upwards] = [null, true];

  function fill() {
    body.replaceChildren(...(sorted ? inOrder() : rows).map(line));
  }

  function inOrder() {
    return [...rows].sort((one, other) => {
      const [a, b] = [sorted.value(one), sorted.value(other)];
      // Rows without a value come last, whichever way the others go.
      if (a == null || b == null) return (a == null) - (b == null);
      return (typeof a === "string" ? a.localeCompare(b) : a - b) * (upwards ? 1 : -1);
    });
  }

  function line(row) {
    const cells = columns.map(({ value, show, numeric, wrap }, index) => {
      const shown = show ? show(row) : value(row);
      const inside = pick && index === 0 ? html("button", { type: "button" }, shown) : shown;
      return html("td", { class: numeric ? "number" : wrap ? "wrap" : null }, inside);
    });
    const classes = `${chosen(row) ? "chosen" : ""} ${pick ? "pick" : ""}`;
    const node = html("tr", { class: classes, "aria-current": chosen(row) ? "true" : null }, ...cells);
    if (pick) {
      node.addEventListener("click", () => {
        pick(row);
        fill();
        body.querySelector(".chosen button").focus(); // the one that had it is gone
      });
    }
    return node;
  }

  columns.forEach((column, index) => {
    const button = html("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      // Numbers first from the top, texts from A.
      [sorted, upwards] = [column, sorted === column ? !upwards : !column.numeric];
      headers.forEach((header) => header.removeAttribute("aria-sort"));
      headers[index].setAttribute("aria-sort", upwards ? "ascending" : "descending");
      fill();
    });
    headers[index].append(button);
  });
  fill();
  const head = html("thead", {}, html("tr", {}, ...headers));
  const box = { class: "card scroll", tabindex: "0", role: "region", "aria-label": name };
  return html("div", box, html("table", {}, head, body));
}

// A label: from counts to rates

function curves(label, counts) {
  const precision = counts.tp.map((tp, index) => ratio(tp, counts.fp[index]));
  const recall = counts.tp.map((tp) => ratio(tp, label.num_positives - tp));
  const fpr = counts.fp.map((fp) => ratio(fp, label.num_negatives - fp));
  const pairs = (across, up) =>
    across.map((value, index) => [value, up[index]]).filter(([one, other]) => one !== null && other !== null);
  return { precision, recall, fpr, pr: pairs(recall, precision), roc: [[0, 0], ...pairs(fpr, recall)] };
}

function lines(label, which) {
  const ours = { name: "this model", kind: "ours", points: curves(label, label.curve)[which] };
  if (!label.baseline) return [ours];
  return [{ name: "log-loss", kind: "baseline", points: curves(label, label.baseline)[which] }, ours];
}

// A dashed line where the constraint lies, if it is on one of the axes.
function asked(constraint, across, up) {
  if (!constraint || ![across, up].includes(constraint.rate)) return [];
  const at = constraint.target;
  return [{ kind: "asked", points: constraint.rate === up ? [[0, at], [1, at]] : [[at, 0], [at, 1]] }];
}

function operatingSpot({ operating }, across, up) {
  const [x, y] = [operating[across], operating[up]];
  if (x === null || y === null) return [];
  const [xs, ys] = [operating.intervals?.[across], operating.intervals?.[up]];
  return [{ name: "operating point", kind: "ours", x, y, xs, ys }];
}

function curveCard(title, label, which, across, up, extra = []) {
  const [dashed, spots] = [asked(label.constraint, across, up), operatingSpot(label, across, up)];
  const drawn = chart({
    label: `${title}: ${RATES[up]} against ${RATES[across]}`,
    x: share(RATES[across]),
    y: share(RATES[up]),
    lines: [...extra, ...dashed, ...lines(label, which)],
    spots,
  });
  const entries = [["line ours", "this model"]];
  if (label.baseline) entries.push(["line baseline", "log-loss"]);
  const intervals = label.operating.intervals ? `, ${percent(label.level)} intervals` : "";
  if (spots.length) entries.push(["spot", `operating point${intervals}`]);
  if (dashed.length) entries.push(["line asked", "asked"]);
  entries.push(["marker", "slider"]);
  return { card: card(title, null, legend(entries), drawn.element), mark: drawn.mark };
}

function promiseCard({ promise, constraint, level }) {
  const title = "Calibration of the promise";
  const atLeast = promise.sense === ">=";
  const [rate, log] = [titleOf(promise.rate), !atLeast];
  const hint = "A threshold for each target, chosen on validation rows, and what it gives on test rows: the promise is "
    + `kept on and ${atLeast ? "above" : "below"} the line. Bars are ${percent(level)} intervals.`;
  const known = promise.points.filter((point) => point.delivered !== null);
  const low = log ? promise.points[0].promised / 2 : 0;
  const spots = known.map(({ promised, delivered, interval }) => {
    const kept = atLeast ? delivered >= promised - 1e-12 : delivered <= promised + 1e-12;
    const near = interval && interval[0] <= promised && promised <= interval[1];
    return { name: rate, kind: kept ? "ours" : near ? "unsure" : "missed", x: promised, y: delivered, ys: interval };
  });
  const aim = constraint ? [{ kind: "asked", points: [[constraint.target, low], [constraint.target, 1]] }] : [];
  const drawn = chart({
    label: `${rate}: delivered against promised`,
    x: { ...share(`${rate} promised`), low, log },
    y: { ...share(`${rate} delivered`), low, log },
    lines: [{ kind: "even", points: [[low, low], [1, 1]] }, ...aim],
    spots,
  });
  const entries = [["spot", "kept"], ["spot unsure", "missed within chance"], ["spot missed", "missed"]];
  if (constraint) entries.push(["line asked", "the aim"]);
  const without = promise.points.filter((point) => point.threshold === null).map((point) => percent(point.promised));
  const words = `On the validation rows no threshold keeps ${without.join(", ")}.`;
  const rest = without.length ? html("p", { class: "hint" }, words) : null;
  return card(title, hint, legend(entries), drawn.element, rest);
}

function scoresCard({ histogram }) {
  const { edges } = histogram;
  const shares = (counts) => {
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    return counts.map((count) => count / total);
  };
  const [positives, negatives] = [shares(histogram.positives), shares(histogram.negatives)];
  const drawn = chart({
    label: "Histogram of the scores of positives and negatives",
    x: { title: "Score", low: edges[0], high: edges.at(-1), format: number },
    y: { title: "Share of its class", low: 0, high: Math.max(...positives, ...negatives) * 1.05, format: percent },
    bars: [{ kind: "baseline", edges, heights: negatives }, { kind: "ours", edges, heights: positives }],
  });
  const entries = [["bar ours", "positives"], ["bar baseline", "negatives"], ["line marker", "slider"]];
  const hint = "The outermost bars also hold the scores beyond them.";
  return { card: card("Scores", hint, legend(entries), drawn.element), mark: drawn.mark };
}

// First the number that was asked for, at the threshold that was chosen; last what the best threshold would have given.
function numbersCard({ name, positive, metric, operating, constraint, level, rows, positives, claimable, claim }) {
  const chosen = metric.at_threshold ?? null;
  const rates = [...new Set([...Object.keys(RATES), ...(constraint ? [constraint.rate] : [])])];
  const interval = (rate) =>
    operating.intervals?.[rate] ? `${percent(level)} interval ${span(operating.intervals[rate])}` : "";
  const objective = metric.name.split("@")[0].replace("tpr", "recall");
  const rank = (rate) => (rate === objective ? 0 : rate === constraint?.rate ? 1 : 2);
  const order = constraint ? rates.sort((one, other) => rank(one) - rank(other)) : rates;
  const ends = chosen?.interval ? `${percent(level)} interval ${chosen.interval.map(number).join(" to ")}` : "";
  const own = chosen && !constraint ? [[`${metric.name} at the threshold`, number(chosen.value), ends]] : [];
  const beside = metric.baseline === null ? "" : `, log-loss ${number(metric.baseline)}`;
  const where = metric.area ? "Over all thresholds" : "For comparison only, at the best threshold of these very rows";
  const entries = [
    ...own,
    ...order.map((rate) => [titleOf(rate), percent(operating[rate]), interval(rate)]),
    ...(claimable === undefined || claimable === null ? []
      : [["Claimable confidence", percent(Math.floor(1000 * claimable + 1e-9) / 1000), claim]]),
    ["Rows", whole(rows), `${whole(positives)} positive: ${classOf(name, positive)}`],
  ];
  const best = metric.ours === null ? null : html("p", { class: "hint best" },
    `${where}: ${metric.name} ${number(metric.ours)}${beside}.`);
  return html("div", { class: "card" }, tiles(entries), best);
}

function showLabel(label) {
  const title = section("label-title");
  const pr = curveCard("Precision and recall", label, "pr", "recall", "precision");
  const roc = curveCard("ROC", label, "roc", "fpr", "recall", [{ kind: "even", points: [[0, 0], [1, 1]] }]);
  const scores = scoresCard(label);
  const slider = sliderCard(label, { pr: pr.mark, roc: roc.mark, scores: scores.mark });
  const grid = html("div", { class: "grid" }, pr.card, roc.card, promiseCard(label), scores.card);
  const several = facts.labels.length > 1;
  title.textContent = several ? `${label.name}: on ${label.on}` : `On ${label.on}`;
  section("label").replaceChildren(title, ...(several ? [html("p", {}, label.sentence)] : []),
    numbersCard(label), slider, ...segmentsTable(label), grid);
  showDependence(facts.labels.indexOf(label));
}

function showLabels() {
  let shown = facts.labels[0];
  showLabel(shown);
  if (facts.labels.length === 1) return;
  const text = (title, value) => ({ title, value });
  const numeric = (title, value, format) => ({ title, value, numeric: true, show: (label) => format(value(label)) });
  const rate = (name) => numeric(RATES[name], (label) => label.operating[name], percent);
  const small = (label) =>
    spark("precision against recall", lines(label, "pr"), operatingSpot(label, "recall", "precision"));
  const columns = [
    text("Label", (label) => label.name),
    text("Verdict", (label) => label.verdict),
    { ...numeric("Curve", (label) => label.metric.ours), show: small },
    numeric("Positives", (label) => label.positives, whole),
    numeric("Metric", (label) => label.metric.ours, number),
    numeric("Log-loss", (label) => label.metric.baseline, number),
    rate("precision"),
    rate("recall"),
    { ...rate("fpr"), title: "FPR" },
  ];
  const hint = "Choose a label to see its charts below, a heading to sort.";
  const pick = (label) => { shown = label; showLabel(label); };
  section("labels").hidden = false;
  section("labels").append(html("p", { class: "hint" }, hint),
    table("Labels", columns, facts.labels, { chosen: (label) => label === shown, pick }));
}

// The training story

function runs() {
  const groups = new Map();
  for (const look of facts.history) {
    const key = JSON.stringify([look.stage, look.candidate]);
    groups.set(key, [...(groups.get(key) ?? []), look]);
  }
  return [...groups.values()];
}

function storyCards() {
  const chosen = new Set(facts.candidates.filter((one) => one.chosen).map((one) => one.name));
  const all = runs().map((looks) => ({ looks, name: looks[0].candidate, ours: chosen.has(looks[0].candidate) }));
  // The chosen one comes last, hence on top.
  all.sort((one, other) => one.ours - other.ours);
  const follow = (field, kind = "ours", some = all) => some
    .map(({ looks, name, ours }) => {
      const points = looks.map((look) => [look.step, look[field] ?? null]).filter(([, value]) => value !== null);
      return { name, kind: ours ? kind : "other", points };
    })
    .filter((one) => one.points.length);
  const own = all.filter((one) => one.ours);
  const stories = [
    ["Exact metric", "On rows held out of training; it chooses among the candidates.", follow("value")],
    ["Violation of the constraint", "Above 0 the constraint is broken.", follow("violation"), 0],
    ["Multiplier", "What the constraint weighs in the loss.", follow("multiplier")],
    ["Threshold", "Learned along with the model.", follow("threshold")],
    ["Surrogate against exact", "Green the rate as trained, dashed the exact one.",
      [...follow("surrogate", "ours", own), ...follow("exact", "exact", own)]],
  ];
  return stories.filter(([, , drawn]) => drawn.length).map(([title, hint, drawn, level]) => {
    const points = drawn.flatMap((one) => one.points);
    const x = { ...around(points.map(([step]) => step), "Step"), format: whole };
    const y = around([...points.map(([, value]) => value), ...(level === undefined ? [] : [level])], "");
    const even = level === undefined ? [] : [{ kind: "even", points: [[x.low, level], [x.high, level]] }];
    return card(title, hint, chart({ label: `${title} over steps`, x, y, lines: [...even, ...drawn] }).element);
  });
}

// The kinds of models beside the answer, on the rows that measure.
function kindsTable() {
  const kinds = facts.kinds ?? [];
  if (kinds.length < 2) return [];
  const numeric = (title, field, format) =>
    ({ title, numeric: true, value: (one) => one[field], show: (one) => format(one[field]) });
  const columns = [
    { title: "Kind", value: (one) => one.kind },
    { title: "Trained by", value: (one) => (one.log_loss ? "log-loss" : one.kind === "linear" || one.kind === "mlp"
      ? "aim or balanced log-loss" : "average") },
    { title: "Best candidate", wrap: true, value: (one) => one.name },
    numeric(facts.labels[0].metric.name, "metric", number),
    numeric(RATES.precision, "precision", percent),
    numeric(RATES.recall, "recall", percent),
    numeric("FPR", "fpr", percent),
  ];
  const hint = `The best of each kind on rows held out of training, each with its own threshold, measured on ${facts.labels[0].on}.`;
  return [html("p", { class: "hint" }, hint), table("Kinds", columns, kinds, { chosen: (one) => one.chosen })];
}

function showTraining() {
  const columns = [
    { title: "Candidate", value: (one) => one.name },
    { title: "Kind", value: (one) => one.kind ?? "" },
    { title: "On rows held out", numeric: true, value: (one) => one.value, show: (one) => number(one.value) },
    { title: "Step", numeric: true, value: (one) => one.step, show: (one) => whole(one.step) },
    { title: "Choice", value: (one) => (one.chosen ? "chosen" : "") },
  ];
  section("training").append(...kindsTable());
  // The chosen one first, then the best.
  const ordered = [...facts.candidates].sort((one, other) => other.chosen - one.chosen || other.value - one.value);
  const hint = "The chosen candidate in green, the others faint.";
  section("training").append(html("p", { class: "hint" }, hint), html("div", { class: "grid small" }, ...storyCards()),
    table("Candidates", columns, ordered, { chosen: (one) => one.chosen }));
}

function showData() {
  const { said, rows, columns } = facts.data;
  const split = Object.entries(rows).map(([part, count]) => `${whole(count)} ${part}`).join(", ");
  const some = (categories) => {
    const listed = categories.slice(0, 6).map(([text, count]) => `${text} (${whole(count)})`).join(", ");
    return categories.length > 6 ? `${listed} and ${categories.length - 6} more` : listed;
  };
  const numeric = (title, field) =>
    ({ title, numeric: true, value: (column) => column[field], show: (column) => number(column[field]) });
  const shown = [
    { title: "Column", value: (column) => column.name },
    { title: "Kind", value: (column) => column.kind },
    numeric("Missing", "missing"),
    numeric("Mean", "mean"),
    numeric("Scale", "scale"),
    { title: "Categories", wrap: true, value: (column) => some(column.categories ?? []) },
    { title: "Why", wrap: true, value: (column) => column.reason ?? "" },
  ];
  const dropped = facts.data.without_label ? ` ${whole(facts.data.without_label)} rows without a label were left out.` : "";
  section("data").append(...(facts.data.choice ? [html("p", {}, facts.data.choice)] : []), html("p", {}, said),
    html("p", { class: "hint" }, `Rows: ${split}.${dropped}`),
    table("Columns", shown, columns));
}

// What a careful colleague would say before anyone believes the numbers.
function showWarnings() {
  const warnings = facts.data.warnings ?? [];
  if (!warnings.length) return;
  const items = warnings.map(({ kind, text }) => html("li", {}, html("strong", {}, `${titleOf(kind)}: `), text));
  section("warnings").hidden = false;
  section("warnings").append(html("ul", {}, ...items));
}

function showMade() {
  const items = Object.entries(facts.made).flatMap(([name, text]) =>
    [html("dt", {}, name), html("dd", { class: name === "command" ? "code" : null }, text)]);
  section("made").append(html("div", { class: "card" }, html("dl", { class: "facts" }, ...items)));
}

showWarnings();
showLabels();
showWhy();
showTraining();
showData();
showMade();
