"""Every figure in the README's table is that of a results file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DEFAULT = "default, one update per episode"
ROW = re.compile(r"^\| .* \| (.*) \| `.*` \|$")


def kept(name: str) -> Any:
    return json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def shown() -> list[str]:
    """The figures of the README's results, row by row."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Results")[2].partition("\n## ")[0]
    return [found[1] for line in text.splitlines() if (found := ROW.match(line))]


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def percents(shares: list[float]) -> str:
    return " · ".join(map(percent, shares))


def over(row: list[float]) -> str:
    """A relative difference with its interval."""
    value, low, high = (round(100 * share) for share in row)
    return f"{value:+d} % [{low}, {high}]"


def times(row: list[float], digits: int = 1) -> str:
    value, low, high = row
    return f"{value:.{digits}f} × [{low:.{digits}f}, {high:.{digits}f}]"


def beside(ours: float, stock: float) -> str:
    return f"{ours:.1f} · {stock:.1f} ({ours / stock:.1f} ×)"


def first_run() -> list[str]:
    found = kept("first_run")
    idle = max(found["learner_idle_ratio"])
    return [
        percents(found["success_before"]),
        f"**{percents(found['success_after'])}**",
        f"{percent(found['lowest_device_utilisation'])} · {percent(idle, 0)}",
    ]


def phones() -> list[str]:
    sim, kills = kept("sim"), kept("kills")
    return [
        f"{round(sim['steps_per_s'], -2):,.0f}",
        f"{sim['frames_per_s']:.0f}",
        f"{sim['rss_mb']:.0f} MB · {sim['reset_ms']:.1f} ms",
        f"{kills['lost_episodes']} · {kills['duplicate_episodes']} of {kills['episodes']:,}",
        f"{kills['longest_silence_s']:.1f} s",
    ]


def collection() -> list[str]:
    found = kept("collection")
    ours, tuned, digirl = (found["schemes"][name] for name in ("async", "tuned_sync", "digirl_sync"))
    rate, busy = "episodes_per_s", "device_utilisation"
    return [
        f"{ours[rate]:.1f} · {tuned[rate]:.1f} ({found['speedup_vs_tuned_sync']:.1f} ×) · "
        f"{digirl[rate]:.1f} ({found['speedup_vs_digirl_sync']:.1f} ×)",
        f"{percent(ours[busy])} · {percent(tuned[busy], 0)} · {percent(digirl[busy], 0)}",
    ]


def learning() -> list[str]:
    race, ends = kept("efficiency"), kept("success")
    first, last = race["wall_s"]["aride"], race["wall_s"]["digirl_sync"]
    value, low, high = race["speedup"]["digirl_sync"]
    own, clock = race["speedup_to_their_end"], ends["iqm_wall_clock"]
    others = percents([clock[name][0] for name in ("digirl, same data", "aride_sync", "digirl_sync")])
    sync = over([ends[f"relative_{name}"] for name in ("vs_digirl", "low", "high")])
    episodes = {name: percent(row[0]) for name, row in ends["iqm"].items()}
    ahead, bare = ({name: over(row) for name, row in ends[key].items()} for key in ("relative", "relative_no_options"))
    return [
        f"{first:.0f} s · {last:.0f} s (**{value:.0f} ×** [{low:.0f}, {high:.0f}])",
        f"{times(own['aride_sync'])} · {times(own['digirl, same data'])}",
        f"**{percent(clock['aride'][0])}** · {others} (**{sync.replace('%', '%** relative')})",
        f"**{episodes['aride']}** · {episodes['digirl']} ({ahead['digirl'].replace('%', '% relative')}) · "
        f"{episodes['filtered_bc']} ({ahead['filtered_bc']})",
        f"{episodes['aride']} · {episodes['digirl, same data']} ({ahead['digirl, same data']}) · "
        f"{episodes['filtered_bc, same data']} ({ahead['filtered_bc, same data']})",
        f"{episodes['aride, no data options']} · {episodes['digirl']} ({bare['digirl']}) · "
        f"{episodes['filtered_bc']} ({bare['filtered_bc']})",
    ]


def changes() -> list[str]:
    found, stale = kept("ablation")["iqm"], kept("staleness")["iqm"]
    turned = (
        DEFAULT,
        "no hindsight",
        "no hindsight, nothing cut, no demonstrations kept",
        "no Retrace",
        "no priorities, rarity kept",
    )
    lags = [stale[form] for form in ("corrected", "ppo_corrected", "ppo_ratios", "ppo_uncorrected")]
    late = [f"{percent(one['8'][0])} instead of {percent(one['0'][0])}" for one in lags]
    return [
        percents([found[name][0] for name in turned]),
        f"{late[0]} · **{late[1]}** · {late[2]} · {late[3]}",
    ]


def parts() -> list[str]:
    weights, replay = kept("weights"), kept("replay")
    late = [weights["p95_s"][at] for at, size in enumerate(weights["size_mb"]) if size == 100]
    inserts, samples = (f"{round(replay[f'{name}_per_s'], -3):,.0f}" for name in ("inserts", "samples"))
    return [" · ".join(f"{one:.2f} s" for one in late), f"{inserts} · {samples}"]


def models() -> list[str]:
    vlm, text, pixel = kept("vlm"), kept("smollm2"), kept("pixel")
    small, large = vlm["by_batch"]
    return [
        *(beside(one["decisions_per_s"], one["stock_decisions_per_s"]) for one in (small, large)),
        beside(vlm["train_samples_per_s"], vlm["stock_train_samples_per_s"]),
        *(f"{percent(one['success_before'][0])} · **{percent(one['success_after'][0])}**" for one in (text, pixel)),
    ]


def test_the_readme_shows_the_figures_of_the_results_files() -> None:
    assert shown() == [*first_run(), *phones(), *collection(), *learning(), *changes(), *parts(), *models()]


def comparisons() -> list[str]:
    """What the page of the results says of success and efficiency, as its files have it."""
    race, ends = kept("efficiency"), kept("success")
    clock, wide = ends["iqm_wall_clock"], ends["relative_wall_clock"]
    own, episodes = race["speedup_to_their_end"], {name: percent(row[0]) for name, row in ends["iqm"].items()}
    ahead, tries = ends["relative"], ends["relative_eight_tries"]
    bare = [f"{100 * ends['iqm'][name][0]:.1f}" for name in ("aride, no data options", "digirl")]
    full = [f"{100 * ends['iqm'][name][0]:.1f}" for name in ("aride", "digirl, same data")]
    return [
        f"fulfils {percent(clock['aride'][0])} after ten minutes and DigiRL in its scheme {percent(clock['digirl_sync'][0])}: "
        f"{over(wide['digirl_sync'])}",
        f"takes {race['wall_s']['aride']:.0f} instead of {race['wall_s']['digirl_sync']:.0f} s: "
        f"{times(race['speedup']['digirl_sync'], 0)}",
        f"comes to {percent(clock['aride_sync'][0])} (the default: {over(wide['aride_sync'])}) and takes {times(own['aride_sync'])}",
        f"comes to {percent(clock['digirl, same data'][0])} ({over(wide['digirl, same data'])}), "
        f"in {times(own['digirl, same data'])} the time",
        f"From {episodes['no practice']} after the warm start",
        f"come to {bare[0]}, {bare[1]} and {episodes['filtered_bc']}",
        f"to {full[0]}, {full[1]} and {episodes['filtered_bc, same data']} with them",
        f"{over(ahead['digirl'])} and {over(ahead['filtered_bc'])} ahead",
        f"{over(ahead['digirl, same data'])} and {over(ahead['filtered_bc, same data'])}. `configs",
        f"with {episodes['aride, eight tries']}, stays behind both: {over(tries['digirl, same data'])} and "
        f"{over(tries['filtered_bc, same data'])}",
        f"makes it {over(ahead['aride, eight tries'])} better",
        f"come to {100 * ends['iqm']['ppo'][0]:.1f} and {episodes['grpo']}: PPO",
    ]


def test_the_page_of_the_results_says_what_its_files_hold() -> None:
    text = " ".join((ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8").split())
    assert [said for said in comparisons() if said not in text] == []


STALE = {
    "corrected": "default, ratios in the targets",
    "uncorrected": "default, no ratios",
    "ppo_corrected": "PPO, ratios and reach",
    "ppo_ratios": "PPO, ratios alone",
    "ppo_uncorrected": "PPO, neither",
}


def points(row: list[float]) -> str:
    value, low, high = (100 * share for share in row)
    return f"{value:+.1f} points [{low:+.1f}, {high:+.1f}]"


def test_the_page_of_the_results_shows_the_figures_of_staleness() -> None:
    text, found = (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8"), kept("staleness")
    bounds = [str(bound) for bound in found["bounds"]]
    rows = [
        f"| {name} | {' | '.join(percent(found['iqm'][form][bound][0]) for bound in bounds)} |"
        for form, name in STALE.items()
    ]
    assert text.partition(f"| lag | {' | '.join(bounds)} |\n")[2].splitlines()[1:6] == rows
    changes, gained = found["change_at_8"], found["correction_at_8"]
    said = [points(changes["ppo_corrected"]), points(changes["ppo_ratios"]), points(gained["ppo_corrected"])]
    assert [one for one in said if one not in " ".join(text.split())] == []


def variant(name: str, found: Any) -> str:
    """The row of a variant in the table of the ablation."""
    less = [f"{100 * share:+.1f}" for share in found["difference"].get(name, [])]
    difference = f"{less[0]} [{less[1]}, {less[2]}]" if less else ""
    return f"| {name} | {percent(found['iqm'][name][0])} | {difference} |"


def test_the_page_of_the_default_shows_the_figures_of_its_ablation() -> None:
    text = (ROOT / "docs" / "algorithms" / "aride.md").read_text(encoding="utf-8")
    table = text.partition("| variant | success | less the default |\n|---|---|---|\n")[2].partition("\n\n")[0]
    found = kept("ablation")
    assert table.splitlines() == [variant(name, found) for name in found["iqm"]]
