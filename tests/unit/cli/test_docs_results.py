"""Every figure in the README and on the page of results is that of a results file, of the single runs or of the suites."""

from __future__ import annotations

import json
import re
import tarfile
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from distrl.bench.learning.methods import EVERYDAY, SHOPPING, Arena
from distrl.config.reference import settings
from distrl.tasks.base import tasks_of
from distrl.tasks.sim.suites import SUITES
from distrl.types import Task

ROOT = Path(__file__).parents[3]
DEFAULT = "default, one update per episode"
ROW = re.compile(r"^\| .* \| (.*) \| (?:`.*`|.*\.json\).*) \|$")
PAGE = "docs/results/README.md"
ARENAS = (EVERYDAY, SHOPPING)


def kept(name: str) -> Any:
    return json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def shown(page: str, heading: str) -> list[str]:
    """The figures of a page's table, row by row."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [found[1] for line in text.splitlines() if (found := ROW.match(line))]


def prose(page: str) -> str:
    """A page on one line, without emphasis."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").replace("**", "").split())


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
        *sturdy(),
    ]


def sturdy() -> list[str]:
    faults, stalls, wrong = kept("faults"), kept("stalls"), kept("wrong_input")
    counted = (f"{faults[key]:,}" for key in ("cases", "fine", "tracebacks", "silent", "lost", "doubled"))
    return [
        " · ".join(counted),
        f"{stalls['named_p50_s']:.2f} s · **{stalls['named_p99_s']:.2f} s** · {stalls['named_slowest_s']:.2f} s",
        f"{wrong['cases']} · {wrong['fine']} · {wrong['p99_s']:.2f} s · {wrong['slowest_s']:.2f} s",
    ]


def collection(name: str = "collection") -> list[str]:
    found = kept(name)
    ours, tuned, digirl = (found["schemes"][name] for name in ("async", "tuned_sync", "digirl_sync"))
    rate, busy = "episodes_per_s", "device_utilisation"
    return [
        f"{ours[rate]:.1f} · {tuned[rate]:.1f} ({found['speedup_vs_tuned_sync']:.1f} ×) · "
        f"{digirl[rate]:.1f} ({found['speedup_vs_digirl_sync']:.1f} ×)",
        f"{percent(ours[busy])} · {percent(tuned[busy], 0)} · {percent(digirl[busy], 0)}",
    ]


def sourced() -> list[str]:
    """As `collection`, with the smallest and the largest ratio of the seeds."""
    found, (_, busy) = kept("collection_sourced"), collection("collection_sourced")
    ours, tuned, digirl = (found["schemes"][name]["episodes_per_s"] for name in ("async", "tuned_sync", "digirl_sync"))
    to_tuned, to_digirl = (
        "[{:.1f}, {:.1f}]".format(*found["speedup_spread"][name]) for name in ("tuned_sync", "digirl_sync")
    )
    return [
        f"{ours:.1f} · {tuned:.1f} ({found['speedup_vs_tuned_sync']:.1f} × {to_tuned}) · "
        f"{digirl:.1f} (**{found['speedup_vs_digirl_sync']:.1f} ×** {to_digirl})",
        busy,
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
        f"{times(own['aride_sync'])} · {times(own['digirl, same data'])}",
        f"{first:.0f} s · {last:.0f} s (**{value:.0f} ×** [{low:.0f}, {high:.0f}])",
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
    weights, replay, adb = kept("weights"), kept("replay"), kept("adb")
    late = [weights["p95_s"][at] for at, size in enumerate(weights["size_mb"]) if size == 100]
    inserts, samples = (f"{round(replay[f'{name}_per_s'], -3):,.0f}" for name in ("inserts", "samples"))
    return [
        " · ".join(f"{one:.2f} s" for one in late),
        *on_ray(),
        *dashboard(),
        f"{inserts} · {samples}",
        f"{adb['tap_ms']:.2f} · {adb['screenshot_ms']:.0f} ms, "
        f"beside {adb['cli_tap_ms']:.1f} · {adb['cli_screenshot_ms']:.0f} ms",
        f"{adb['show_ms']:.0f} ms",
    ]


def on_ray() -> list[str]:
    weights, faults, ray, scale = (kept(name) for name in ("ray_weights", "ray_faults", "ray", "scale"))
    assert (weights["size_mb"], weights["workers"]) == ([100, 100], [4, 16])
    assert (faults["finished"], faults["exactly_once"], faults["pauses_not_named"]) == (True, True, 0)
    assert ray["local"]["n"] == 300
    assert (scale["bend_devices"], scale["bend_resource"]) == (1000, "cores")
    runs = [ray[name] for name in ("local", "ray", "ray_actors")]
    lost = f"{faults['faults']} · {faults['lost_episodes']} · {faults['duplicate_episodes']} of {faults['episodes']:,}"
    return [
        "{:.2f} s · **{:.2f} s**".format(*weights["p95_s"]),
        lost,
        f"{faults['named_p50_s']:.1f} s · {faults['named_slowest_s']:.1f} s",
        percents([run["success_after"] for run in runs]),
        f"{ray['throughput_ratio']:.2f} · {ray['throughput_ratio_actors']:.2f}",
        " · ".join(f"{rate:.1f}" for rate in scale["trajectories_per_s"]),
        percents([*scale["cpu_share"]]),
        percents([*scale["machine_share"]]),
    ]


def dashboard() -> list[str]:
    found = kept("view")
    assert (found["episodes"], found["devices"], found["training_devices"]) == (10_000, 300, 144)
    assert found["first_paint_ms"] < 1000
    shares = [[100 * share for share in found[f"{what}_share"]] for what in ("steps", "episodes", "updates")]
    server = [found[f"server_rss_{when}_mb"] for when in ("before", "after")]
    return [
        f"{found['first_paint_ms']:.0f} ms · {found['rows_painted_ms']:.0f} ms",
        f"{server[0]:.1f} MB · {server[1]:.1f} MB; {found['rss_before_mb']:.1f} MB · {found['rss_after_mb']:.1f} MB",
        " · ".join(f"{share:.1f} % [{low:.1f}, {high:.1f}]" for share, low, high in shares),
    ]


def android() -> list[str]:
    strings, faults = kept("quoting"), kept("android_faults")
    trained = faults["run"]
    assert (strings["strings"], set(strings["shells"])) == (10_000, {"sh", "bash", "mksh"})
    assert (faults["finished"], len(faults["by_kind"]), faults["faults"] >= 200) == (True, 6, True)
    counts = [
        trained["lost_episodes"],
        trained["duplicate_episodes"],
        trained["restarts"],
        faults["counted_as_failure"],
    ]
    here, load = kept("android"), kept("judge_load")
    ways = [here["adb"], here["in_process"]]
    assert (here["phones"], here["minutes"], here["test_tasks"]) == (8, 5.0, 100)
    assert (load["instructions"], load["overlap"], load["at_once"]) == (500, 0, 8)
    assert load["slow_answers"]["judged_at_once"] >= 7.5
    low, high = (round(100 * share) for share in load["kept_spread"])
    return [
        f"{strings['broken_out']} · {strings['changed']} · {strings['typed_wrong']}",
        " · ".join(map(str, [faults["faults"], *counts])),
        " · ".join(f"{100 * one['success_before'][0]:.1f} → {percent(one['success_after'][0])}" for one in ways),
        " · ".join(f"{one['steps_per_s']:.0f}" for one in ways),
        f"{percent(load['kept'], 0)} [{low}, {high}] · {percent(load['kept_one_at_a_time'], 0)}",
        *judge(),
        *judge_cost(),
    ]


def judge() -> list[str]:
    found = kept("judge")
    assert (found["n"], "10% of the verdicts turned round" in found["judge"], found["unknown"]) == (400, True, 0.0)
    rates = [found[name] for name in ("accuracy", "false_positive_rate", "false_negative_rate")]
    return [percents(rates), percents([one["accuracy"] for one in found["by_length"].values()])]


JUDGES = ("5% wrong, correlated", "10% wrong, correlated", "20% wrong, correlated", "20% wrong, at random")


def judge_cost() -> list[str]:
    found = kept("judge_cost")
    costs = [[f"{100 * share:.0f}" for share in found["cost"][judge]] for judge in JUDGES]
    return [
        percents([found["iqm"][judge][0] for judge in ("exact judge", *JUDGES)]),
        " · ".join(f"{cost} [{low}, {high}]" for cost, low, high in costs),
    ]


def test_the_pages_of_android_and_judges_show_what_was_measured() -> None:
    here, load, sourced = kept("android"), kept("judge_load"), kept("collection_sourced")
    assert (sourced["profile"], sourced["seeds"], sourced["restarts"]) == ("digirl", 2, 0)
    told = "{:.1f} times the episodes a second of DigiRL's scheme there, and {:.1f} times those of a well-tuned barrier"
    ratios = (sourced["speedup_vs_digirl_sync"], sourced["speedup_vs_tuned_sync"])
    assert told.format(*ratios) in prose("docs/devices.md")
    shares = [100 * here[way][when][0] for way in ("adb", "in_process") for when in ("success_before", "success_after")]
    rates = [here[way]["steps_per_s"] for way in ("adb", "in_process")]
    told = "from {:.0f} to {:.0f} % behind adb, and from {:.0f} to {:.0f} % in the process, with {:.0f} and {:.0f} steps a second"
    assert told.format(*shares, *rates) in prose("docs/android.md")
    kept_shares = [100 * share for share in (load["kept"], *load["kept_spread"], load["kept_one_at_a_time"])]
    told = "collection kept {:.0f} % ({:.0f} to {:.0f} % between neighbouring windows), with one at a time {:.0f} %"
    assert told.format(*kept_shares) in prose("docs/judges.md")
    right, positive, negative = judge()[0].split(" · ")
    told = f"it finds {right} right, {positive} false positives and {negative} false negatives in 400 episodes"
    assert told in prose("docs/judges.md")
    _, ten, twenty, _ = judge_cost()[1].split(" · ")
    told = "10 % cost {} points {} and 20 % cost {} {}, as much as random errors"
    assert told.format(*ten.split(" ", 1), *twenty.split(" ", 1)) in prose("docs/judges.md")


def exact(row: list[float]) -> float:
    """A share of `n` tasks, from its value rounded to four digits."""
    value, _, _, n = row
    return round(value * n) / n


def models() -> list[str]:
    vlm, runs = kept("vlm"), [kept(name) for name in ("smollm2", "smollm2_600", "pixel")]
    whole, run, screen = kept("smollm2_general"), kept("vlm_run"), kept("screen_vlm")
    *cloned, pixel = (f"{percent(one['success_before'][0])} · **{percent(one['success_after'][0])}**" for one in runs)
    seen, unseen = (
        f"{100 * exact(whole[f'{which}_templates_before']):.1f} → {percent(exact(whole[f'{which}_templates_after']))}"
        for which in ("seen", "unseen")
    )
    return [
        *(beside(one["decisions_per_s"], one["stock_decisions_per_s"]) for one in vlm["by_batch"]),
        beside(vlm["train_samples_per_s"], vlm["stock_train_samples_per_s"]),
        f"{run['decisions_per_s']:.1f} · {run['samples_per_s']:.1f} · {percent(run['gpu_utilisation'])} · {percent(run['device_utilisation'])}",
        f"{percent(screen['grounded']['success'][0])} · {percent(screen['practised']['success'][0])}",
        f"**{percent(screen['grounded_further']['success'][0])}**",
        *practised_screens(),
        *cloned,
        f"{percent(whole['success_before'][0])} · {percent(whole['success_after'][0])}",
        f"{seen} · {unseen}",
        pixel,
    ]


def practised_screens() -> list[str]:
    found = kept("screen_practice")
    assert (found["suite"], found["demonstrations"], found["screens_only"]) == ("sim-start", 96, 1104)
    assert [(one["seed"], one["before"]["tasks"], one["after"]["tasks"]) for one in found["practice"]] == [
        (0, 300, 300),
        (1, 300, 300),
    ]
    both = [[one[when] for one in found["practice"]] for when in ("before", "after")]
    wholes, answers = ([[each[what] for each in when] for when in both] for what in ("success", "answering"))
    successes = [sum(round(each[0] * 300) for each in when) for when in wholes]
    rates = [" · ".join(f"{100 * each[0]:.1f}" for each in when) for when in wholes]
    asked = [" · ".join(f"{100 * share:.0f}" for share in when) for when in answers]
    return [
        f"{rates[0]} → **{rates[1]} %**",
        f"{successes[0]} → {successes[1]} of 600: {gain(found)}",
        f"{asked[0]} → {asked[1]} %",
    ]


def speeds() -> list[str]:
    pages = kept("web")
    gym = pages["mobilegym"]
    four = [" · ".join(f"{one['steps_per_s'][count]:.1f}" for count in "1248") for one in (pages, gym)]
    return [
        f"{four[0]} · {pages['selenium_steps_per_s']:.1f} ({pages['speedup_at_4']:.1f} ×)",
        f"{four[1]} · {gym['own_steps_per_s']:.1f} ({gym['speedup_at_4']:.1f} ×)",
        f"{gym['own_unpaused_steps_per_s']:.1f} ({gym['speedup_unpaused_at_4']:.1f} ×)",
    ]


def web() -> list[str]:
    pages, kills = kept("miniwob"), kept("web_kills")
    after = [page["after"] for page in pages["tasks"].values()]
    assert (pages["num_tasks"], sum(page["n"] for page in pages["tasks"].values())) == (24, 480)
    assert (kills["episodes"], kills["finished"], kills["profiles_left"]) == (1000, 1000, 0)
    gym = kept("mobilegym")
    assert (gym["usable_tasks"], gym["train_tasks"], len(gym["left_out"])) == (126, 59, 134)
    assert [(name, row["n"]) for name, row in gym["levels"].items()] == [("L1", 13), ("L2", 54)]
    assert all(row["rise_low"] < 0.0 < row["rise_high"] for row in gym["levels"].values())  # no rise is claimed
    return [
        f"{100 * pages['mean_before']:.1f} → **{percent(pages['mean_after'])}**",
        f"{sum(share >= 0.95 for share in after)} · {sum(share == 0.0 for share in after)}",
        f"{kills['kills']} · {kills['cut_off']} · {kills['lost']} · {kills['processes_left']}",
        *speeds(),
        " · ".join(f"{100 * row['before']:.1f} → {percent(row['after'])}" for row in gym["levels"].values()),
    ]


def test_the_page_of_the_results_shows_the_figures_of_its_files() -> None:
    found = [
        *first_run(),
        *phones(),
        *collection(),
        *sourced(),
        *learning(),
        *changes(),
        *parts(),
        *android(),
        *web(),
        *models(),
    ]
    assert shown(PAGE, "Figures") == found


def test_the_page_of_the_results_says_how_many_wrong_commands_there_are() -> None:
    wrong = kept("wrong_input")
    fixed, made = wrong["cases"] - wrong["generated"], wrong["generated"]
    assert f"{fixed} fixed cases and {made} of {wrong['possible']:,} that are generated" in (ROOT / PAGE).read_text(
        encoding="utf-8"
    )


def ten_figures() -> list[str]:
    """The README's table."""
    before, after, _ = first_run()
    (rates, busy), kills = collection(), kept("kills")
    race, ends, small, large = kept("efficiency"), kept("success"), kept("smollm2"), kept("smollm2_600")
    clock, episodes = ends["iqm_wall_clock"], {name: percent(row[0]) for name, row in ends["iqm"].items()}
    return [
        f"{before} → {after}",
        re.sub(r"\((\d+\.\d ×)\)$", r"(**\1**)", rates),
        busy,
        times(race["speedup_to_their_end"]["aride_sync"]).replace("4.1 ×", "**4.1 ×**"),
        f"{race['wall_s']['aride']:.0f} s · {race['wall_s']['digirl_sync']:.0f} s "
        f"({times(race['speedup']['digirl_sync'], 0)})",
        percents([clock[name][0] for name in ("aride", "digirl, same data", "aride_sync", "digirl_sync")]),
        " · ".join(episodes[name] for name in ("aride", "digirl, same data", "filtered_bc, same data")),
        " · ".join(episodes[name] for name in ("aride, no data options", "digirl", "filtered_bc")),
        f"{kills['lost_episodes']} · {kills['duplicate_episodes']} of {kills['episodes']:,}",
        f"{percent(large['success_before'][0])} · {percent(small['success_before'][0])} → "
        f"{percent(small['success_after'][0])}",
    ]


def test_the_readme_shows_ten_figures_of_the_results_files() -> None:
    assert shown("README.md", "Ten figures") == ten_figures()
    assert len(ten_figures()) == 10


def test_the_rows_of_success_themselves_say_how_short_and_how_seen_their_tasks_are() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Ten figures")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if ROW.match(line)]
    steps = [arena.settings["tasks.max_oracle_steps"] for arena in ARENAS]
    tasks = [task for arena in ARENAS for task in arena_tasks(arena)]
    first = [task for split in ("train", "test") for task in tasks_of(SUITES["sim-start"], split)]
    said = {
        "first run": f"tasks of at most {max(task.oracle_steps for task in first)} steps, all of seen templates",
        "success after ten minutes": f"tasks of at most {max(task.oracle_steps for task in first)} steps, all of seen",
        "success after 1,024 episodes": f"tasks of at most {steps[0]} / {steps[1]} steps; "
        f"{sum(map(is_unseen, tasks))} of {len(tasks)} tasks are of unseen templates, no gain seen there",
        "the same, on the same tasks, without": "",
        "SmolLM2": "98.7 % · 19.0 % → 89.0 %",
    }
    assert [name for name, words in said.items() if not any(name in row and words in row for row in rows)] == []
    assert {task.template for task in first if task.split == "test"} <= {
        t.template for t in first if t.split == "train"
    }
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_file_beside_a_figure_of_the_readme_holds_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Ten figures")[2].partition("\n## ")[0]
    files = [re.findall(r"\((docs/results/\w+\.json)\)", line) for line in text.splitlines() if ROW.match(line)]
    assert all(files)
    assert [file for row in files for file in row if not (ROOT / file).exists()] == []


def test_the_readme_shows_what_the_first_run_printed() -> None:
    run = kept("first_run")["runs"][0]
    before, after = (run[f"success_{when}_rate"] for when in ("before", "after"))
    said = [
        f"success before: {share(before)}",
        f"success after : {share(after)}",
        f"{run['episodes']} episodes, {run['steps']} steps in {run['wall_s']:.0f} s; version {run['policy_version']}",
        f"phones busy {run['device_utilisation']:.1%} of the time, learner idle {run['learner_idle_ratio']:.1%}",
        f"phones lost and recovered {run['device_losses']}",
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [line for line in said if line not in text] == []


def share(rate: dict[str, float]) -> str:
    return f"{rate['value']:.1%}  [{rate['low']:.1%}, {rate['high']:.1%}] on {rate['n']} held-out tasks"


def gain(found: Any) -> str:
    """Of practice on screens, in points, with its interval."""
    low, high = found["gain_interval"]
    return f"{found['gain_points']:+.1f} points [{low:.1f}, {high:.1f}]"


def limits() -> list[str]:
    """The sentences of the README on what is not shown, as files and suites have them."""
    steps = [arena.settings["tasks.max_oracle_steps"] for arena in ARENAS]
    tasks = [task for arena in ARENAS for task in arena_tasks(arena)]
    unseen = [task for task in tasks if is_unseen(task)]
    small, large, pixel = kept("smollm2"), kept("smollm2_600"), kept("pixel")
    value, low, high = kept("screen_vlm")["grounded_further"]["success"]
    practised = kept("screen_practice")
    before, after = ([100 * one[when]["success"][0] for one in practised["practice"]] for when in ("before", "after"))
    ours, errs = (
        kept("ablation")["difference"][name] for name in ("no hindsight", "hindsight by a judge that errs in 10 %")
    )
    return [
        f"tasks of at most {steps[0]} and at most {steps[1]} oracle steps",
        f"{len(unseen)} of {len(tasks)} tasks in these rows are of unseen templates, and no gain is seen there",
        "With the same data no difference between A-RIDE, DigiRL and filtered BC is seen",
        f"{kept('collection')['speedup_vs_digirl_sync']:.1f} × is on simulated delays",
        f"[{kept('collection_sourced')['speedup_vs_digirl_sync']:.1f} ×](docs/results/collection_sourced.json), and "
        f"{kept('collection_sourced')['speedup_vs_tuned_sync']:.1f} × a tuned barrier",
        f"SmolLM2 reaches {percent(large['success_before'][0])} by cloning 600 demonstrations, without any practice; "
        f"cloning 200 and then practising reaches {percent(small['success_after'][0], 0)}",
        f"from {percent(pixel['success_before'][0])} to {percent(pixel['success_after'][0])}, one seed",
        f"{-100 * errs[0]:.0f} of the {-100 * ours[0]:.0f} points that hindsight brings are lost "
        f"[{-100 * errs[2]:.0f}, {-100 * errs[1]:.0f}]",
        "never on a real Android",
        "No second machine has been used",
        f"shown next steps of {practised['demonstrations']} tasks, went from {before[0]:.1f} · {before[1]:.1f} to {after[0]:.1f} · {after[1]:.1f} % "
        f"of `sim-start` from screenshots alone in {practised['practice'][0]['seconds'] / 60:.1f} minutes of practice ({gain(practised)}, one grounding, two seeds)",
        f"without practice, reaches {percent(value)} [{100 * low:.1f}, {100 * high:.1f}]",
    ]


def test_the_readme_says_what_is_not_shown() -> None:
    text = prose("README.md")
    assert [said for said in limits() if said not in text] == []


def test_the_speed_of_the_scheme_alone_stands_before_that_of_scheme_and_data() -> None:
    for page in ("README.md", PAGE):
        text = prose(page)
        assert 0 < text.index("4.1 × [2.7, 7.5]") < text.index("18 × [14, 22]")


def test_no_difference_excludes_no_more_than_three_to_four_points() -> None:
    ends = kept("success")
    rivals = ("digirl, same data", "filtered_bc, same data")
    ends_of = [100 * ends["iqm"][name][0] * edge for name in rivals for edge in ends["relative"][name][1:]]
    assert {round(abs(points)) for points in ends_of} == {3, 4}
    assert "exclude no more than 3 to 4 points" in prose("README.md")
    assert "3 to 4 points" in prose(PAGE)


def arena_tasks(arena: Arena) -> tuple[Task, ...]:
    """The test tasks that an arena is evaluated on, in order."""
    suite, most = SUITES[arena.settings["tasks.suite"]], int(arena.settings["tasks.max_oracle_steps"])
    return tuple(task for task in tasks_of(suite, "test") if task.oracle_steps <= most)


def is_unseen(task: Task) -> bool:
    """Whether the task's template is for test alone."""
    return any(template.test_only for template in SUITES[task.suite].templates if template.name == task.template)


@cache
def single_runs() -> list[tuple[str, bool, list[bool]]]:
    """Suite, whether it is the default or what cloning alone comes to, and the outcomes of those runs of `success`."""
    found = []
    with tarfile.open(ROOT / "docs" / "results" / "runs.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None or not member.name.startswith("labjob"):
                continue
            run = json.load(file)
            config, rate = run["job"]["config"], run["job"]["config"]["learner"]["learning_rate"]
            practised = config["algorithm"]["name"] == "aride" and rate == 0.003
            if config["tasks"]["suite"] != "sim-start" and (practised or rate == 1e-12):
                found.append((config["tasks"]["suite"], practised, run["result"]["outcomes"]))
    return found


def seen_and_unseen() -> list[str]:
    """The rows of the table on unseen templates."""
    rows = []
    for unseen in (True, False):
        for arena, noun in zip(ARENAS, ("templates", "template") if unseen else ("templates",) * 2, strict=True):
            tasks = arena_tasks(arena)
            at = [index for index, task in enumerate(tasks) if is_unseen(task) == unseen]
            before, after = (
                100
                * mean(
                    mean(outcomes[index] for index in at)
                    for suite, practised, outcomes in single_runs()
                    if suite == tasks[0].suite and practised == wanted
                )
                for wanted in (False, True)
            )
            name = f"{arena.name}, {'unseen' if unseen else 'seen'} {noun}"
            rows.append(f"| {name} | {len(at)} | {before:.1f} % | {after:.1f} % | {after - before:+.1f} |")
    return rows


def test_the_page_of_the_results_shows_the_gain_on_unseen_templates() -> None:
    assert [len(arena_tasks(arena)) for arena in ARENAS] == [arena.test_tasks for arena in ARENAS]
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert [row for row in seen_and_unseen() if row not in text] == []


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
    text = " ".join((ROOT / PAGE).read_text(encoding="utf-8").split())
    assert [said for said in comparisons() if said not in text] == []


def test_every_setting_that_a_file_names_is_a_setting_of_today_or_has_its_new_name_on_the_page() -> None:
    table = (ROOT / PAGE).read_text(encoding="utf-8").partition("| in the files | today |")[2].partition("\n\n")[0]
    named = {
        key for path in (ROOT / "docs" / "results").glob("*.json") for key in keys_in(json.loads(path.read_text()))
    }
    assert named
    gone = [key for key in sorted(named) if key not in settings()]
    assert [key for key in gone if not is_explained(key, table)] == []


def keys_in(value: Any) -> set[str]:
    """Everything in a file that is the dotted name of a setting."""
    if isinstance(value, list):
        return set().union(*map(keys_in, value))
    if not isinstance(value, dict):
        return set()
    own = {key for key in value if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", key)}
    return own.union(*map(keys_in, value.values()))


def is_explained(key: str, table: str) -> bool:
    """Whether the table of names has the key: by itself, or as one of those that moved into the table of an algorithm."""
    moved = f"algorithm.aride.{key.removeprefix('algorithm.')}" in settings()
    return moved or any(name in table for name in (f"`{key}", f"`{key.rpartition('.')[2]}`"))


STALE = {
    "corrected": "default, ratios in the targets",
    "uncorrected": "default, no ratios",
    "ppo_corrected": "PPO, ratios and trust region",
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
