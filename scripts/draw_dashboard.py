#!/usr/bin/env python3
"""Draws a Grafana dashboard of Prometheus' metrics as SVG, to look at it without Grafana.

Panels `stat` and `timeseries` with their units, legends and thresholds, on Grafana's page of 24 columns. With the
directory of a soak, its faults are marks below each graph: `scripts/test soak --metrics`, docs/soak.md.
"""
import argparse
import html
import json
import math
import re
import time
import urllib.parse
import urllib.request

WIDTH, CELL, GAP = 1500, 38, 8
COLOURS = "#73bf69 #f2cc0c #5794f2 #ff780a #f2495c #b877d9 #37872d #fade2a #1f60c4 #fa6400 #c4162a #8f3bb8".split()
KINDS = {}

def ask(url, path, **arguments):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}") as reply:
        return json.load(reply)["data"]["result"]

def scaled(value, base, units):
    for factor, unit in units:
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}{base}"

def text_of(value, unit):
    if value is None or math.isnan(value):
        return "-"
    if unit == "s":
        return "0 s" if value == 0 else scaled(value, " s", [(60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")])
    if unit == "percentunit":
        return f"{value * 100:.3g}%"
    if unit == "short" and value == int(value):
        return f"{value:,.0f}"
    suffix = {"reqps": " req/s", "cps": " c/s"}.get(unit, "")
    return scaled(value, "", [(1e6, " Mil"), (1e4, " K")] if not suffix else [(1e3, "K")]) + suffix

def ticks(top):
    step = 10 ** math.floor(math.log10(top / 4)) if top > 0 else 1
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if top / (step * factor) <= 5)
    return [step * number for number in range(int(top / step) + 1)]

def label(x, y, text, size=12, fill="#ccccdc", anchor="start", extra=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" {extra}>{html.escape(text)}</text>'

class Page:
    def __init__(self, options, faults):
        self.url, self.start, self.end, self.faults = options.url, options.start, options.end, faults
        self.interval, self.job = options.interval, options.job
        self.step = options.step or options.interval
    def query(self, target, instant):
        expr = target["expr"].replace("$__rate_interval", f"{self.interval * 4}s")
        expr = expr.replace("$operation", '.*",job="' + self.job if self.job else ".*")
        if instant:
            return [(row["metric"], [(self.end, float(row["value"][1]))]) for row in ask(self.url, "query", query=expr, time=self.end)]
        rows = ask(self.url, "query_range", query=expr, start=self.start, end=self.end, step=self.step)
        return [(row["metric"], [(float(at), float(value)) for at, value in row["values"]]) for row in rows]
    def stat(self, panel, x, y, w, h):
        defaults = panel["fieldConfig"]["defaults"]
        rows = self.query(panel["targets"][0], True)
        value = rows[0][1][0][1] if rows else None
        colour = "#3d3d45"
        for step in defaults["thresholds"]["steps"]:
            if value is not None and (step["value"] is None or value >= step["value"]):
                colour = {"green": "#56a64b", "red": "#e02f44"}.get(step["color"], step["color"])
        decimals = defaults.get("decimals")
        shown = defaults.get("noValue", "No data") if value is None else text_of(round(value, decimals) if decimals is not None else value, defaults["unit"])
        return (f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="{colour}"/>' + label(x + 8, y + 18, panel["title"], 13, "#fff")
                + label(x + w / 2, y + h / 2 + 22, shown, 46, "#fff", "middle"))
    def graph(self, panel, x, y, w, h):
        out = [f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="#181b1f"/>', label(x + 8, y + 18, panel["title"], 13)]
        defaults = panel["fieldConfig"]["defaults"]
        unit, log = defaults["unit"], defaults.get("custom", {}).get("scaleDistribution", {}).get("type") == "log"
        series = []
        for target in panel["targets"]:
            for metric, points in self.query(target, False):
                name = re.sub(r"\{\{(\w+)\}\}", lambda found: metric.get(found[1], ""), target["legendFormat"])
                points = [(at, value) for at, value in points if not math.isnan(value)]
                if points:
                    series.append((name, points))
        key = panel['options']['legend'].get('sortBy')
        series.sort(key=(lambda one: -max(value for _, value in one[1])) if key == 'Max' else None)
        # Grafana gives a legend a third of the panel, and the rest of it is reached by scrolling.
        legend = min(len(series), int(h * 0.35 / 18) - 1)
        left, right, top, bottom = x + 62, x + w - 8, y + 30, y + h - 34 - 15 * (legend + 1)
        highest = max((value for _, points in series for _, value in points), default=0) or 1
        highest = min(highest, defaults["max"]) if "max" in defaults else highest
        if not series:
            out.append(label(x + w / 2, y + h / 2, defaults.get("noValue", "No data"), 14, "#8e8e99", "middle"))
        lowest = min((value for _, points in series for _, value in points if value > 0), default=1)
        def place(value):
            if log:
                span = max(math.log(highest / lowest), 1e-9)
                return bottom - (bottom - top) * max(math.log(max(value, lowest) / lowest), 0) / span
            return bottom - (bottom - top) * min(value / highest, 1)
        across = lambda at: left + (right - left) * (at - self.start) / (self.end - self.start)
        marks = ticks(highest) if not log else [10.0 ** n for n in range(math.ceil(math.log10(lowest)), math.floor(math.log10(highest)) + 1)]
        for value in marks:
            out.append(f'<path d="M{left} {place(value):.1f}H{right}" stroke="#2c3036"/>')
            out.append(label(left - 5, place(value) + 4, text_of(value, unit), 10, "#8e8e99", "end"))
        for minute in range(int(self.start // 60) + 1, int(self.end // 60) + 1):
            out.append(label(across(minute * 60), bottom + 22, f"{minute // 60 % 24:02}:{minute % 60:02}", 10, "#8e8e99", "middle"))
        for kind in dict.fromkeys(kind for _, kind in self.faults):
            colour = KINDS.setdefault(kind, COLOURS[(len(KINDS) * 5 + 4) % len(COLOURS)])
            path = "".join(f"M{across(at):.1f} {bottom + 1}v8" for at, other in self.faults if other == kind)
            out.append(f'<path d="{path}" stroke="{colour}"/>')
        for number, (name, points) in enumerate(series):
            colour, path, before = COLOURS[number % len(COLOURS)], [], None
            for at, value in points:
                path.append(f"{'L' if before is not None and at - before <= self.step + 0.1 else 'M'}{across(at):.1f} {place(value):.1f}")
                before = at
            out.append(f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
        base = bottom + 40
        out.append(label(x + 8, base, "Name", 10, "#6e9fff") + label(right - 90, base, "Last *", 10, "#6e9fff", "end") + label(right, base, "Max", 10, "#6e9fff", "end"))
        for number, (name, points) in enumerate(series[:legend]):
            line = base + 15 * (number + 1)
            out.append(f'<rect x="{x + 8}" y="{line - 6}" width="12" height="3" fill="{COLOURS[number % len(COLOURS)]}"/>' + label(x + 26, line, name, 11))
            out.append(label(right - 90, line, text_of(points[-1][1], unit), 11, anchor="end"))
            out.append(label(right, line, text_of(max(value for _, value in points), unit), 11, anchor="end"))
        if len(series) > legend:
            out.append(label(right, y + 18, f"{len(series) - legend} more in the legend, which scrolls", 10, "#8e8e99", "end"))
        return "".join(out)

def faults_of(directory):
    """The log of the nemesis, whose times are those of the clock that does not step."""
    since_1970 = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    with open(f"{directory}/faults.log", encoding="utf-8") as log:
        lines = [line.split(" ") for line in log]
    return [(int(line[0]) / 1e6 + since_1970, line[2]) for line in lines]

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dashboard", help="the JSON of the dashboard")
    parser.add_argument("url", help="of Prometheus, as http://127.0.0.1:9090")
    parser.add_argument("start", type=float, help="seconds since 1970")
    parser.add_argument("end", type=float)
    parser.add_argument("--interval", type=int, default=5, help="seconds between two scrapes")
    parser.add_argument("--step", type=int, help="seconds between two points; default: the interval")
    parser.add_argument("--job", help="of Prometheus, where there are several")
    parser.add_argument("--soak", metavar="DIR", help="journals of a soak on this machine, since it was started")
    options = parser.parse_args()
    faults = faults_of(options.soak) if options.soak else []
    page = Page(options, [one for one in faults if options.start <= one[0] <= options.end])
    out, lowest = [], 0
    with open(options.dashboard, encoding="utf-8") as file:
        panels = json.load(file)["panels"]
    unit = WIDTH / 24
    for panel in panels:
        at = panel["gridPos"]
        x, y, w, h = at["x"] * unit + GAP, at["y"] * CELL + GAP, at["w"] * unit - GAP, at["h"] * CELL - GAP
        lowest = max(lowest, y + h)
        if panel["type"] == "row":
            out.append(label(x, y + 22, "⌄ " + panel["title"], 15))
        else:
            out.append((page.stat if panel["type"] == "stat" else page.graph)(panel, x, y, w, h))
    key, x = [], GAP
    for kind, colour in KINDS.items():
        count = sum(1 for _, other in page.faults if other == kind)
        key.append(f'<rect x="{x}" y="{lowest + 12}" width="12" height="12" fill="{colour}"/>' + label(x + 18, lowest + 23, f"{kind} ({count})", 12))
        x += 60 + 8 * len(f"{kind} ({count})")
    height = lowest + 36
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + GAP} {height:.0f}" font-family="Inter, Arial, sans-serif">'
          f'<rect width="100%" height="100%" fill="#111217"/>{"".join(out)}{"".join(key)}</svg>')

main()
