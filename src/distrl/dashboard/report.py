"""`report.html`: a run in one file that opens anywhere, without scripts, network or distrl.

Success before and after, curves, the best and worst episodes of the end with their screens, failures by what went wrong, settings and
environment. Whatever comes from devices, models and settings is escaped.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path

from distrl import Run, __version__
from distrl.config.load import dump_toml
from distrl.dashboard.catalogue import CUT_OFF, Entry
from distrl.dashboard.drawing import chart_svg, screen_svg
from distrl.dashboard.episode_page import environment_of
from distrl.dashboard.figures import Chart, charts_of
from distrl.dashboard.run_list import OpenRun
from distrl.errors import StoreError
from distrl.evaluation.film import in_words
from distrl.evaluation.report import Rate, Report, gains_by_seen, gains_by_template, read_report
from distrl.experience.durable import replace, storage_errors
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import Summary
from distrl.types import Trajectory

REPORT = "report.html"
NEWEST = 2000
"""Played episodes that failures are counted over and examples taken from."""
EXAMPLES, MOST_STEPS, MOST_CAUSES = 3, 8, 15
PICTURE_BYTES = 400_000
"""A larger screenshot is drawn as boxes, so that the file stays small enough to send."""
READ_S = 30.0
SIDE_EFFECT = "changed what nobody asked for"
"""How the reason of a judge begins who found side effects."""
CHANGE = re.compile(r"(?P<table>[\w-]+(?:\.[\w-]+)*)/(?P<id>[^. ]*).*? (?P<verb>was made|is gone|changed)")
VERBS = {"is gone": "deleted", "was made": "added", "changed": "changed"}
WEIGHTS = tuple(VERBS.values())
CHARTS = ("success", "evaluations", "throughput", "loss", "entropy", "staleness", "waits", "busy")


def write_report(path: Path) -> Path:
    """Write the report of the run in this folder; where it is."""
    opened = OpenRun(path)
    opened.refresh()
    text = report_of(opened)
    target = opened.run.path / REPORT
    with storage_errors(opened.run.path):
        replace(target, text.encode())
    return target


def report_of(opened: OpenRun) -> str:
    """The page."""
    run, status = opened.run, opened.status()
    opened.catalogue.read_details(READ_S)
    played = [entry for entry in opened.catalogue.entries if entry.source == "played"][-NEWEST:]
    charts = {chart.id: chart for chart in charts_of(opened, "all")}
    sections = [
        f"<h1>{escape(run.name)}</h1><p class='soft'>{escape(_how(run))}; {status.phase}. Written by distrl {__version__}.</p>",
        _figures(opened),
        _list("Notices and troubles", [status.cause, *status.notices, *status.troubles]),
        _charts([charts[id] for id in CHARTS if id in charts]),
        _templates(run),
        _failures(played),
        _episodes(run, "Best episodes", _best(played)),
        _episodes(run, "Worst episodes", _worst(played)),
        f"<h2>Settings</h2><pre tabindex='0' role='region' aria-label='Settings'>{escape(dump_toml(run.config))}</pre>",
        f"<h2>Environment</h2><pre tabindex='0' role='region' aria-label='Environment'>{escape(environment_of(run))}</pre>",
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    return f'<!doctype html><html lang="en"><head>{head}<title>{escape(run.name)}</title><style>{STYLE}</style></head><body><main>{"".join(sections)}</main></body></html>\n'


def _how(run: Run) -> str:
    config = run.config
    return f"{config.algorithm.kind} on {config.tasks.suite}, policy {config.policy.kind}, devices {config.devices.kind}, seed {config.run.seed}"


def _figures(opened: OpenRun) -> str:
    status = opened.status()
    rates, summary = status.evaluations, _summary(opened.run)
    last = rates.get("after") or next((rates[name] for name in reversed(rates) if name != "before"), None)
    figures = [
        ("success before", _share(rates.get("before")), _interval(rates.get("before"))),
        ("success after" if "after" in rates else "success, last", _share(last), _interval(last)),
        ("episodes", f"{status.episodes:,}", f"{status.steps:,} steps"),
        ("time", f"{status.budget.wall_s / 60:.1f} min", f"{status.budget.collect_s / 60:.1f} min collecting"),
        ("devices busy", f"{status.device_utilisation:.1%}", ""),
        ("restarts", str(status.budget.restarts), ""),
    ]
    if summary is not None:
        figures += [
            ("learner idle", f"{summary.learner_idle_ratio:.1%}", ""),
            ("staleness, mean", f"{summary.staleness_mean:g}", f"at most {summary.staleness_max:g}"),
        ]
    cells = (
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span><small>{escape(more)}</small></div>"
        for name, value, more in figures
    )
    return f"<section class='figures'>{''.join(cells)}</section>"


def _summary(run: Run) -> Summary | None:
    try:
        return run.summary
    except StoreError:
        return None


def _share(rate: Rate | None) -> str:
    return "not evaluated" if rate is None else f"{rate.value:.1%}"


def _interval(rate: Rate | None) -> str:
    return "" if rate is None else f"[{rate.low:.1%}, {rate.high:.1%}] of {rate.n} held-out tasks"


def _list(title: str, lines: Iterable[str]) -> str:
    found = [line for line in lines if line]
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in found)}</ul>" if found else ""


def _charts(charts: Sequence[Chart]) -> str:
    made = []
    for chart in charts:
        names = [f"<i class='c{number % 4}'></i>{escape(line.name)}" for number, line in enumerate(chart.lines)]
        legend = f"<p class='legend'>{' '.join(names)}</p>" if len(names) > 1 else ""
        made.append(
            f"<figure><h3>{escape(chart.title)}{_unit(chart)}</h3>{chart_svg(chart)}{legend}<figcaption>{escape(chart.says)} Healthy: {escape(chart.healthy)}.</figcaption></figure>"
        )
    return f"<h2>Curves</h2><section class='charts'>{''.join(made)}</section>" if made else ""


def _unit(chart: Chart) -> str:
    """Of the axis upwards; a share has its per cent there."""
    return "" if chart.bounded or not chart.unit else f" <small>{escape(chart.unit)}</small>"


# --- templates --------------------------------------------------------------------------------------------------------


def _templates(run: Run) -> str:
    """Success of every template in the last evaluation, beside that before the training."""
    found: dict[str, Report] = {}
    for name in ("before", "after"):
        with suppress(StoreError):
            found[name] = read_report(RunFolder(run.path).evaluations / f"{name}.json")
    before, after = found.get("before"), found.get("after")
    if after is None:
        return ""
    rows = [
        f"<tr><td>{escape(row.name)}</td><td class='num'>{row.n}</td><td class='num'>{'–' if row.before is None else f'{row.before:.0%}'}</td>"
        f"<td class='num'>{row.after:.0%}</td></tr>"
        for row in (*gains_by_seen(before, after), *gains_by_template(before, after))
    ]
    head = "<tr><th>template</th><th>tasks</th><th>before</th><th>after</th></tr>"
    table = f"<div class='scroll short' tabindex='0' role='region' aria-label='Success by template'><table>{head}{''.join(rows)}</table></div>"
    return f"<h2>Success by template</h2><p class='soft'>On held-out tasks, least first.</p>{table}"


# --- episodes ---------------------------------------------------------------------------------------------------------


def cause_of(entry: Entry) -> str:
    """What went wrong, without the names that differ from one episode to the next."""
    detail = entry.detail
    reason = "" if detail is None else _without_names(detail.reason)
    if detail is not None and detail.side_effects and detail.reason.startswith(SIDE_EFFECT):
        # An episode counts once: by what weighs most.
        reason = f"{SIDE_EFFECT}: {min(map(kind_of_change, detail.side_effects), key=_weight)}"
    ended = "" if entry.ending in ("finished", "environment") else entry.ending.replace("_", " ")
    return ": ".join(part for part in (ended, reason) if part) or "no reason was given"


def _without_names(text: str) -> str:
    return re.sub(r"[\"'“][^\"'”]{1,80}[\"'”]|(?<=[a-z])\d+", "…", text).replace(" (…)", "")


def kind_of_change(side_effect: str) -> str:
    """A side effect without the record that it befell: "contacts: person deleted" for each person.

    A setting has a name for an id, and keeps it; records are numbered.
    """
    found = CHANGE.fullmatch(side_effect)
    if found is None:
        return _without_names(side_effect)
    app, dot, noun = found["table"].rpartition(".")
    what = found["id"] if found["id"].isalpha() and found["id"].islower() else noun
    return f"{app}{': ' if dot else ''}{what} {VERBS[found['verb']]}"


def _weight(kind: str) -> tuple[int, str]:
    verb = kind.rpartition(" ")[2]
    return WEIGHTS.index(verb) if verb in WEIGHTS else len(WEIGHTS), kind


def _failures(played: Sequence[Entry]) -> str:
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in played:
        if not entry.success and entry.ending != CUT_OFF:
            groups[cause_of(entry)].append(entry)
    if not groups:
        return ""
    total = sum(map(len, groups.values()))
    rows = []
    for cause, entries in sorted(groups.items(), key=lambda one: -len(one[1]))[:MOST_CAUSES]:
        templates = sorted(
            {entry.template for entry in entries}, key=lambda name: -sum(e.template == name for e in entries)
        )
        example = next((entry.detail.instruction for entry in reversed(entries) if entry.detail is not None), "")
        rows.append(
            f"<tr><td class='num'>{len(entries)}</td><td class='num'>{len(entries) / total:.0%}</td><td>{escape(cause)}</td>"
            f"<td>{escape(', '.join(templates[:3]))}</td><td>{escape(example)}</td></tr>"
        )
    head = "<tr><th>times</th><th>share</th><th>what went wrong</th><th>most in</th><th>such as</th></tr>"
    cut = sum(entry.ending == CUT_OFF for entry in played)
    more = f" {cut} more were cut off by the end of the run." if cut else ""
    says = f"<p class='soft'>Of the newest {len(played)} played episodes, {total} were no success.{more}</p>"
    return f"<h2>Failures</h2>{says}<div class='scroll' tabindex='0' role='region' aria-label='Failures'><table>{head}{''.join(rows)}</table></div>"


def _best(played: Sequence[Entry]) -> list[Entry]:
    """Of the end of the run, the longest that succeeded, each of another template."""
    return _of_different_templates(sorted((e for e in played[-300:] if e.success), key=lambda entry: -entry.steps))


def _worst(played: Sequence[Entry]) -> list[Entry]:
    """Of the end of the run, those that came least far, with the most steps, each of another template."""
    failed = [
        entry
        for entry in played[-300:]
        if not entry.success
        and entry.ending != CUT_OFF
        and entry.detail is not None
        and entry.detail.outcome == "failure"
    ]
    return _of_different_templates(
        sorted(failed, key=lambda entry: (entry.detail.progress if entry.detail else 0, -entry.steps))
    )


def _of_different_templates(entries: Sequence[Entry]) -> list[Entry]:
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry.template, entry)
    return list(found.values())[:EXAMPLES]


def _episodes(run: Run, title: str, entries: Sequence[Entry]) -> str:
    shown = [
        _episode(run, trajectory)
        for trajectory in run.episodes_of([entry.id for entry in entries])
        if trajectory is not None
    ]
    return f"<h2>{title}</h2>{''.join(shown)}" if shown else ""


def _episode(run: Run, episode: Trajectory) -> str:
    steps = []
    for number, step in list(enumerate(episode.steps, 1))[:MOST_STEPS]:
        seen, action = step.observation, step.decision.action
        words = in_words(action, seen.elements)
        note = "" if step.valid and (step.changed or number == len(episode.steps)) else " (nothing changed)"
        picture = screen_svg(seen, action, _picture(run, seen.screenshot), f"step {number}: {words}")
        steps.append(
            f"<li>{picture}<p><b>{number}</b> {escape(words)}{note}<br><small>value {step.decision.value:.2f}</small></p></li>"
        )
    left = len(episode.steps) - MOST_STEPS
    more = f"<li class='soft'>and {left} more steps</li>" if left > 0 else ""
    verdict = episode.verdict
    says = f"{verdict.outcome}{f': {verdict.reason}' if verdict.reason else ''}; {episode.task.template}, {episode.device or 'a device'}"
    return f"<article><h3>{escape(episode.task.instruction)}</h3><p class='soft'>{escape(says)}</p><ol tabindex='0' aria-label='Steps'>{''.join(steps)}{more}</ol></article>"


def _picture(run: Run, reference: str) -> bytes:
    if not reference:
        return b""
    try:
        found = run.frame(reference)
    except StoreError:
        return b""
    return found if len(found) <= PICTURE_BYTES and found.startswith((b"\xff\xd8", b"\x89PNG")) else b""


STYLE = """
:root{--bg:#fff;--ink:#191e24;--soft:#56606b;--line:#dfe3e7;--sunk:#f3f5f6;--c0:#0a6870;--c1:#b3500a;--c2:#5b4bb5;--c3:#2f7d2f;--touch:#d55e00;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--bg:#14191e;--ink:#e4e8ec;--soft:#9ba6b2;--line:#2c353e;--sunk:#1d242b;--c0:#58c4ca;--c1:#f0a05a;--c2:#a99cf2;--c3:#7fc97f;--touch:#ff9442}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}h1{font-size:22px;margin:0;overflow-wrap:anywhere}h2{font-size:16px;margin:34px 0 8px}h3{font-size:14px;margin:0 0 2px;overflow-wrap:anywhere}
p{margin:2px 0}.soft,small,figcaption{color:var(--soft)}.figures{display:flex;flex-wrap:wrap;gap:14px 34px;margin-top:18px}.figures b{display:block;font-size:21px;line-height:1.25}.figures span,.figures small{display:block;font-size:12px;color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:18px}figure{margin:0;min-width:0}figcaption,.legend{font-size:12px}.legend i{display:inline-block;width:14px;border-top:2px solid;margin:0 5px 3px 10px}
svg{display:block;width:100%}svg text{font-size:10px;fill:var(--soft)}h3 small{font-weight:400}@media(max-width:600px){figure svg text{font-size:14px}}.grid{stroke:var(--line)}.line{fill:none;stroke-width:1.7}.band{opacity:.14;stroke:none}
.line.c0,.legend .c0{stroke:var(--c0);border-color:var(--c0)}.line.c1,.legend .c1{stroke:var(--c1);border-color:var(--c1)}.line.c2,.legend .c2{stroke:var(--c2);border-color:var(--c2)}.line.c3,.legend .c3{stroke:var(--c3);border-color:var(--c3)}
.band.c0,.dot.c0{fill:var(--c0)}.band.c1,.dot.c1{fill:var(--c1)}.band.c2,.dot.c2{fill:var(--c2)}.band.c3,.dot.c3{fill:var(--c3)}
table{border-collapse:collapse;width:100%;font-size:13px}th{text-align:left;white-space:nowrap;color:var(--soft);font-weight:500}th,td{padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}.num{white-space:nowrap}.scroll{overflow-x:auto}.short{max-height:420px;overflow-y:auto;max-width:640px}@media(max-width:600px){.scroll table{min-width:640px}}
article{margin:14px 0 22px}ol{list-style:none;display:flex;gap:14px;overflow-x:auto;margin:8px 0 0;padding:0 0 8px}li{overflow-wrap:anywhere}ol li{flex:0 0 150px;font-size:12px}
.screen{border:1px solid var(--line);border-radius:6px;background:var(--sunk)}.screen .box{fill:var(--bg);stroke:var(--line)}.screen .word{font-size:6.5px;fill:var(--ink)}.hit{fill:none;stroke:var(--c0);stroke-width:1.5}.touch{fill:none;stroke:var(--touch);stroke-width:2.5}
pre{background:var(--sunk);border-radius:6px;padding:12px 14px;overflow:auto;max-height:460px;font:12px/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media print{pre,.short{max-height:none}ol{flex-wrap:wrap}}
"""
