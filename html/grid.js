/* What asv's pages lack: keys, names for a screen reader, noise that looks like noise, a zoom that is in the address,
   and milestones on a graph. `kvpool` is what grid-data.js says of the history. */
"use strict";

(function ($) {
    const NO_ADDRESS = "#";

    /* Links */

    /* asv shows a blank page where an address names no benchmark, as one of a commit does. */
    function leads_nowhere() {
        const [name] = location.hash.replace(/^#\/?/, "").split("?");
        return !["", "summarylist", "regressions", ...kvpool.benchmarks].includes(name);
    }

    if (leads_nowhere()) {
        history.replaceState(null, "", "#/");
    }
    window.addEventListener("hashchange", event => {
        if (leads_nowhere()) {
            event.stopImmediatePropagation();
            location.replace("#/");
        }
    });

    const addressed = () => $.asv.main_json.show_commit_url !== NO_ADDRESS;

    /* asv opens a commit's page when its point is clicked; without an address there is none. */
    const open = window.open;
    window.open = (address, ...rest) => addressed() ? open.call(window, address, ...rest) : null;

    function unlink(link) {
        if (!addressed() && /^#(\.\.\/compare\/)?[0-9a-f]{6,40}(\.\.\.[0-9a-f]+)?$/.test(link.getAttribute("href"))) {
            link.replaceWith(link.textContent);
        }
    }

    /* Noise */

    const QUIET = "no more than times moved there that run no code of kvpool";

    const benchmark_of = name => $.asv.main_json.benchmarks[name.innerText.split("(")[0].trim()];

    const moved = text => Math.abs(Math.log1p(parseFloat(text.replace("\u2212", "-")) / 100));

    function quieten(row) {
        const [name, , change, changed_at] = row.cells;
        if (change.title) {
            return;
        }
        const commit = changed_at.innerText.slice(-8);
        if (kvpool.controls.some(value => name.innerText.includes(value))) {
            change.className = "change noise";
            change.title = "runs no code of kvpool: what changed is the machine";
        } else if (benchmark_of(name).unit === "seconds" && moved(change.innerText) <= Math.log1p(kvpool.drifts[commit])) {
            change.className = "change noise";
            change.title = QUIET;
        }
    }

    function quieten_regression(row) {
        const [name, , changed_at, factor] = row.cells;
        const drift = kvpool.drifts[changed_at.innerText.slice(-8)];
        if (!row.title && benchmark_of(name).unit === "seconds" && Math.log(parseFloat(factor.innerText)) <= Math.log1p(drift)) {
            row.classList.add("noise");
            row.title = QUIET;
        }
    }

    /* From a graph to its benchmark */

    function add_source() {
        const name = $("#title").text();
        if (kvpool.source && $.asv.main_json.benchmarks[name]) {
            const href = `${kvpool.source}benchmarks/${name.split(".")[0]}.py`;
            $("#title").append(" ", $("<a>source</a>").attr({href, target: "_blank"}));
        }
    }

    /* Keys, and names for a screen reader */

    const PRESSED_BY_KEY = ".btn[role=button], label.nav-header, th[data-sort]";
    let pressed = null;

    const place = button => [$(button).closest(".panel").find(".panel-heading").text().trim(), button.innerText.trim()];

    document.addEventListener("keydown", event => {
        if (event.target.matches(PRESSED_BY_KEY) && [" ", "Enter"].includes(event.key)) {
            event.preventDefault();
            pressed = place(event.target);
            event.target.click();
        }
    });

    /* asv makes its buttons anew after each choice. */
    function keep_focus() {
        if (pressed && document.activeElement === document.body) {
            const again = $(PRESSED_BY_KEY).filter((_, each) => String(place(each)) === String(pressed)).first();
            again.trigger("focus");
        }
    }

    function name_things() {
        $(PRESSED_BY_KEY).attr("tabindex", 0);
        $(".btn-group .btn, .btn-group-vertical .btn").each((_, button) => {
            button.setAttribute("aria-pressed", button.classList.contains("active"));
        });
        $("label.nav-header").attr("role", "button").each((_, label) => {
            label.setAttribute("aria-expanded", $(label).next().is(":visible"));
        });
        $("th[data-sort]").each((_, head) => {
            const order = {asc: "ascending", desc: "descending"}[head.className.match(/\b(asc|desc)$/)?.[1]];
            head.setAttribute("aria-sort", order || "none");
        });
        $(".panel").attr("role", "group").each((_, panel) => {
            panel.setAttribute("aria-label", $(panel).find(".panel-heading").text().trim());
        });
        $("#nav li a").removeAttr("aria-current");
        $("#nav li.active a").attr("aria-current", "page");
        $("#main-graph").attr({role: "img", "aria-label": `Graph of ${$("#title").text().trim()}; figures.csv has its figures`});
    }

    let scheduled = false;

    function improve() {
        scheduled = false;
        if (!$.asv.main_json.benchmarks) {
            return;
        }
        $("#summarylist-body td a, #regressions-body td a").each((_, link) => unlink(link));
        $("#summarylist-body tbody tr").each((_, row) => quieten(row));
        $("#regressions-body tbody tr").each((_, row) => quieten_regression(row));
        name_things();
        add_source();
        keep_focus();
    }

    function skip() {
        $("#summarygrid-display, #summarylist-body, #graph, #regressions-display").filter(":visible").first()
            .attr("tabindex", -1).trigger("focus");
    }

    /* Zoom */

    const on_commits = info => !info.params["x-axis"] || info.params["x-axis"][0] === "commit";

    function place_of(hash) {
        const revision = hash && $.asv.get_revision(hash);
        if (revision === null || revision === "") {
            return null;
        }
        return $("#date-scale").hasClass("active") ? $.asv.main_json.revision_to_date[revision] : Number(revision);
    }

    function range_of(text) {
        const [from, to] = (text || "").split("..").map(place_of);
        return from != null && to != null && from < to ? {xaxis: {from, to}} : null;
    }

    /* Not by location.hash, which would have asv draw its page anew. */
    function remember(text) {
        const info = $.asv.parse_hash_string(window.location.hash);
        delete info.params.zoom;
        if (range_of(text)) {
            info.params.zoom = [text];
        }
        history.replaceState(null, "", $.asv.format_hash_string(info));
    }

    const redraw = () => $(window).trigger("resize");

    function zoom(plot) {
        const info = $.asv.parse_hash_string(window.location.hash);
        const range = info.params.zoom && on_commits(info) && range_of(info.params.zoom[0]);
        if (range && plot.getOptions().xaxes[0].min == null) {
            setTimeout(() => plot === $("#main-graph").data("plot") && plot.setSelection(range));
        }
    }

    /* Milestones */

    function draw_milestones(plot, context) {
        if (!on_commits($.asv.parse_hash_string(window.location.hash))) {
            return;
        }
        const {left, top} = plot.getPlotOffset();
        let last = -Infinity;
        context.save();
        context.beginPath();
        context.rect(left, top, plot.width(), plot.height());
        context.clip();
        context.font = "11px sans-serif";
        for (const [hash, name] of kvpool.milestones) {
            const place = place_of(hash);
            const x = place === null ? NaN : plot.getAxes().xaxis.p2c(place);
            if (!(x >= 0 && x <= plot.width())) {
                continue;
            }
            context.fillStyle = "#ccc";
            context.fillRect(left + x, top, 1, plot.height());
            const beside = x > plot.width() - 12 ? x - 3 : x + 11;
            if (beside - last >= 12) {
                context.save();
                context.fillStyle = "#666";
                context.translate(left + beside, top + plot.height() - 4);
                context.rotate(-Math.PI / 2);
                context.fillText(name, 0, 0);
                context.restore();
                last = beside;
            }
        }
        context.restore();
    }

    $.plot.plugins.push({
        name: "kvpool",
        version: "1",
        init(plot) {
            if (plot.getPlaceholder().attr("id") === "main-graph") {
                plot.hooks.drawBackground.push(draw_milestones);
                plot.hooks.bindEvents.push(zoom);
            }
        },
    });

    $(() => {
        $("#skip").on("click", skip);
        $("#overview").attr("aria-hidden", true);
        $("#title").attr({role: "heading", "aria-level": 1});
        /* On the element around the graph: asv removes all other listeners from the graph itself. */
        $("#graph").on("plotselected", () => remember($("#range").val()));
        $("#range").prop("readonly", false).on("change", event => {
            remember(event.target.value);
            redraw();
        }).attr("aria-label", "Commits shown, first..last");
        $("#unzoom").on("click", () => {
            remember("");
            redraw();
        });
        new MutationObserver(() => {
            if (!scheduled) {
                scheduled = true;
                requestAnimationFrame(improve);
            }
        }).observe(document.body, {subtree: true, childList: true, attributes: true, attributeFilter: ["class"]});
    });
})(jQuery);
