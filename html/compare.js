/* Two commits beside each other. figures.js gives `commits`, `cases`, and addresses where the repository has any. */
"use strict";

const QUANTILE = 0.9;
const LEAST_TIME = 0.05;
const LEAST_COUNT = 0.01;

const [before, after, hide, table, summary] =
    ["before", "after", "hide", "figures", "summary"].map(id => document.getElementById(id));

const moved = (one, other) => one === other ? 0 : Math.abs(Math.log(other / one));

/* As history/site/trend.py has it: nine in ten of the times that run no code of kvpool moved by at most this. */
function drift(first, second) {
    const moves = cases.filter(each => each.control && each.unit === "seconds")
        .map(each => [each.figures[first], each.figures[second]])
        .filter(([one, other]) => one && other)
        .map(([one, other]) => moved(one, other))
        .sort((one, other) => one - other);
    return Math.max(Math.log1p(LEAST_TIME), moves[Math.floor(QUANTILE * (moves.length - 1))] || 0);
}

function verdict(each, one, other, noise) {
    if (each.control) {
        return "noise";
    }
    const least = each.unit === "seconds" ? noise : Math.log1p(LEAST_COUNT);
    return moved(one, other) <= least ? "noise" : other < one ? "better" : "worse";
}

function figure(value, unit) {
    const scales = {
        seconds: [[1, "s"], [1e-3, "ms"], [1e-6, "μs"], [1e-9, "ns"]],
        bytes: [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]],
    }[unit] || [[1, unit]];
    const [size, name] = scales.find(([size]) => value >= size) || scales[scales.length - 1];
    return `${Number((value / size).toPrecision(4))} ${name}`;
}

function ratio(one, other) {
    return one === other ? "1" : one === 0 ? "from none" : (other / one).toPrecision(3);
}

function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    made.append(text);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
}

function head(benchmark) {
    const source = sources[benchmark];
    const cell = element("th", "", {scope: "rowgroup", colspan: 4});
    cell.append(source ? element("a", benchmark, {href: source}) : benchmark);
    const row = document.createElement("tr");
    row.append(cell);
    return row;
}

function show() {
    const [first, second] = [before.selectedIndex, after.selectedIndex];
    const noise = drift(first, second);
    const counts = {better: 0, worse: 0, noise: 0};
    const groups = new Map();
    for (const each of cases) {
        const [one, other] = [each.figures[first], each.figures[second]];
        if (one === null || other === null) {
            continue;
        }
        const found = verdict(each, one, other, noise);
        counts[found] += 1;
        const row = element("tr", "", {class: found === "noise" ? "noise" : ""});
        row.append(element("td", each.parameters || "(no parameters)"), element("td", figure(one, each.unit)),
                   element("td", figure(other, each.unit)), element("td", ratio(one, other), {class: found}));
        if (!groups.has(each.benchmark)) {
            groups.set(each.benchmark, []);
        }
        groups.get(each.benchmark).push(row);
    }
    table.querySelectorAll("tbody").forEach(body => body.remove());
    for (const [benchmark, rows] of groups) {
        const body = document.createElement("tbody");
        body.className = rows.every(row => row.className === "noise") ? "noise" : "";
        body.append(head(benchmark), ...rows);
        table.append(body);
    }
    summary.replaceChildren(
        `${counts.better} better, ${counts.worse} worse, ${counts.noise} within the noise, ` +
        `which is ${(100 * Math.expm1(noise)).toFixed(0)} % of a time here. `);
    if (address) {
        summary.append(element("a", "What the later one changed", {href: address + commits[second].hash}));
    }
}

function chosen() {
    const [, one, other] = location.hash.match(/^#([0-9a-f]+)\.\.([0-9a-f]+)$/) || [];
    const place = hash => commits.findIndex(each => hash && (each.hash.startsWith(hash) || hash.startsWith(each.hash)));
    before.selectedIndex = place(one) >= 0 ? place(one) : Math.max(commits.length - 2, 0);
    after.selectedIndex = place(other) >= 0 ? place(other) : commits.length - 1;
    show();
}

function choose() {
    history.replaceState(null, "", `#${commits[before.selectedIndex].hash}..${commits[after.selectedIndex].hash}`);
    show();
}

if (commits.length) {
    for (const select of [before, after]) {
        commits.forEach(each => select.append(element("option", `${each.hash} ${each.name}`)));
        select.addEventListener("change", choose);
    }
    hide.addEventListener("change", () => table.classList.toggle("quiet-hidden", hide.checked));
    window.addEventListener("hashchange", chosen);
    chosen();
} else {
    summary.textContent = "Nothing is recorded yet.";
}
