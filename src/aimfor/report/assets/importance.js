// Why: what the columns are worth, and the mean score at some values of the strongest.

const brief = (value) => (value == null ? "–" : number(Number(value.toPrecision(2))));

// entries: name, value, low and high of a whisker (or null), and the text of the value; all bars start at 0.
function barList(label, entries) {
  const ends = entries.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value, 0]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const at = (value) => (100 * (value - low)) / (high - low || 1);
  const rows = entries.flatMap((entry) => {
    const [start, end] = [at(Math.min(0, entry.value)), at(Math.max(0, entry.value))];
    const bar = svg("rect", { class: "bar ours", x: `${start}%`, y: 2, width: `${end - start}%`, height: 10 });
    const ends = { x1: `${at(entry.low ?? 0)}%`, x2: `${at(entry.high ?? 0)}%`, y1: 7, y2: 7 };
    const whisker = entry.low == null ? null : svg("line", { class: "cross ours", ...ends });
    const drawn = svg("svg", { "aria-hidden": "true" }, bar, whisker);
    return [html("span", {}, entry.name), drawn, html("span", { class: "number" }, entry.shown)];
  });
  return html("div", { class: "bars", role: "group", "aria-label": label }, ...rows);
}

function importanceCard(importance) {
  const shown = importance.columns.slice(0, 15);
  const entries = shown.map(({ name, drop, spread }) => ({
    name,
    value: drop,
    low: spread === null ? null : drop - spread,
    high: spread === null ? null : drop + spread,
    shown: spread === null ? brief(drop) : `${brief(drop)} ± ${brief(spread)}`,
  }));
  const hint = `How much ${importance.metric} (${number(importance.value)}) gets worse when a column is shuffled among `
    + `${whole(importance.rows)} rows the model never saw; ± is the spread over ${importance.repeats} shuffles. Columns `
    + "that say the same share their worth.";
  return card("Importance", hint, barList("Importance of columns", entries));
}

function importanceTable(importance) {
  const linear = importance.columns.some((column) => column.coefficients);
  const weights = ({ coefficients }) =>
    (coefficients ?? []).map((one) => `${one.feature}: ${one.weights.map(number).join(" / ")}`).join(", ");
  const numeric = (title, field) =>
    ({ title, numeric: true, value: (column) => column[field], show: (column) => brief(column[field]) });
  const columns = [
    { title: "Column", value: (column) => column.name },
    numeric("Gets worse by", "drop"),
    numeric("±", "spread"),
  ];
  if (importance.columns.some((column) => column.gain !== null)) {
    columns.push({ ...numeric("Split gain of trees", "gain"), show: (column) => percent(column.gain) });
  }
  if (linear) columns.push({ title: "Coefficients", wrap: true, value: weights });
  const rest = importance.not_shuffled
    ? html("p", { class: "hint" }, `${whole(importance.not_shuffled)} weaker columns were not shuffled.`) : "";
  return [table("Importance", columns, importance.columns), rest];
}

function dependenceCard({ name, values, scores, missing }, label, threshold) {
  const own = scores.map((one) => one[label]);
  const hint = missing === null ? null : `Missing: ${brief(missing[label])}.`;
  if (values.some((value) => typeof value === "string")) {
    const entries = values.map((name, index) => ({ name, value: own[index], shown: brief(own[index]) }));
    return card(name, hint, barList(`Mean score by ${name}`, entries));
  }
  const y = around([...own, ...(missing === null ? [] : [missing[label]])], "Mean score");
  const x = around(values, name);
  const points = values.map((value, index) => [value, own[index]]);
  const inside = threshold !== null && threshold >= y.low && threshold <= y.high;
  const asked = inside ? [{ kind: "asked", points: [[x.low, threshold], [x.high, threshold]] }] : [];
  const lines = [...asked, { name, kind: "ours", points }];
  return card(name, hint, chart({ label: `Mean score by ${name}`, x, y, lines }).element);
}

// The cards of one label; labels beyond those that were asked about have none.
function showDependence(label) {
  const box = document.getElementById("dependence");
  if (!box) return;
  const known = facts.importance.dependence.filter(({ scores }) => scores[0].length > label);
  const { threshold } = facts.labels[label].operating;
  const title = facts.labels.length > 1 ? `Strongest columns: ${facts.labels[label].name}` : "Strongest columns";
  const hint = "The mean score if all rows had this value; a dashed line is the operating threshold.";
  const cards = known.map((entry) => dependenceCard(entry, label, threshold));
  box.replaceChildren(...(known.length ? [html("h3", {}, title), html("p", { class: "hint" }, hint),
    html("div", { class: "grid small" }, ...cards)] : []));
}

function showWhy() {
  if (!facts.importance) return;
  section("why").hidden = false;
  section("why").append(importanceCard(facts.importance), ...importanceTable(facts.importance),
    html("div", { id: "dependence" }));
  showDependence(0);
}
