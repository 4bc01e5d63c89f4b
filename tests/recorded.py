"""A small recorded history, written as asv writes it."""

import json

BENCHMARKS = {
    "version": 2,
    "bench_canary.Canary.time_loop": {"params": [], "version": "1"},
    "bench_host.Alloc.time_alloc": {"params": [["'fifo'", "'floor'"], ["1", "8"]], "version": "2"},
}


def write_results(folder, commit, canary, alloc, version="2", machine_name="m", started=1000):
    """Write what asv would of one commit: the canary's figure, and those of four cases of an allocation."""
    columns = ["result", "params", "version", "started_at"]
    folder.joinpath(machine_name).mkdir(parents=True, exist_ok=True)
    folder.joinpath(machine_name, "machine.json").write_text(
        json.dumps({"version": 1, "machine": machine_name, "cpu": "c"})
    )
    folder.joinpath("benchmarks.json").write_text(json.dumps(BENCHMARKS))
    folder.joinpath(machine_name, f"{commit[:8]}-env.json").write_text(
        json.dumps(
            {
                "version": 2,
                "commit_hash": commit,
                "env_name": "env",
                "date": 0,
                "params": {"machine": machine_name, "cpu": "c", "python": "3.11", "numpy": "2.4.6"},
                "python": "3.11",
                "requirements": {"numpy": "2.4.6"},
                "env_vars": {},
                "result_columns": columns,
                "results": {
                    "bench_canary.Canary.time_loop": [[canary], [], "1", started * 1000],
                    "bench_host.Alloc.time_alloc": [
                        alloc,
                        BENCHMARKS["bench_host.Alloc.time_alloc"]["params"],
                        version,
                        started * 1000,
                    ],
                },
                "durations": {},
            }
        )
    )
