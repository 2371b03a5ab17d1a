#!/usr/bin/env python3
"""Does the exporter count what the clients counted? A real Dynamo front end with mock engines, load from outside, workers that come and go.

    cargo build --release
    tests/testbed/compare.py TESTBED target/release/inference-planner-exporter

TESTBED is a folder with up.sh, down.sh, scale.sh and load.py, which start the front end, its workers and the load. For an aggregated and a
disaggregated fleet it runs the exporter with windows of 20 s, plays a minute of load while workers are added and removed, adds up the
exporter's windows, and compares: requests and output tokens exactly, TTFT within 3 ms + 2 %, ITL within 2 %. A front end counts prompts at
their first token and requests at their end, so that prompt tokens are compared over the whole run, by `plan` from the pages before and after.
Exits with 1 if anything differs.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

WINDOW = 20
MODES = {
    "aggregated": (["--mode", "agg", "--workers", "2"], {"agg": "aggregated"}, [(12, "agg", 3), (30, "agg", 1), (45, "agg", 2)]),
    "disaggregated": (
        ["--mode", "disagg", "--prefill", "1", "--decode", "1"],
        {"prefill": "prefill", "decode": "decode"},
        [(12, "decode", 2), (25, "prefill", 2), (45, "decode", 1)],
    ),
}


def config(run, pools):
    lines = [
        'server: { listen: "127.0.0.1:0" }',
        "scrape: { interval: 1s, timeout: 900ms }",
        "models:",
        "  - name: tiny",
        f"    planner: {{ preset: dynamo, target: throughput, adjustment_interval: {WINDOW}s }}",
        "    traffic:",
        f"      targets: {{ file_sd: {run}/sd/frontend.json, refresh_interval: 1s }}",
        "    pools:",
    ]
    for folder, role in pools.items():
        capabilities = ", capabilities: { context_length: 8192 }" if role == "prefill" else ""
        lines.append(
            f"      - {{ name: tiny-{folder}, role: {role}, max_replicas: 8, targets: {{ file_sd: {run}/sd/{folder}.json, refresh_interval: 1s }}{capabilities} }}"
        )
    return "\n".join(lines) + "\n"


def plans(address):
    with urllib.request.urlopen(f"http://{address}/api/v1/plans", timeout=5) as answer:
        models = json.load(answer)["models"]
    return models[0] if models else None


class Windows:
    """The exporter's windows, each once."""

    def __init__(self, address):
        self.address, self.last, self.seen, self.counts = address, None, [], {}

    def look(self):
        plan = plans(self.address)
        if plan is None:
            return
        for pool in plan["pools"]:
            self.counts.setdefault(pool["pool"], []).append(pool["current_replicas"])
        window = plan["observation"]
        key = (window["elapsed_seconds"], window["requests"], window["ttft_seconds"])
        if window["elapsed_seconds"] is not None and key != self.last:
            self.last = key
            self.seen.append(window)

    def wait(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            time.sleep(0.5)


def page(run, path):
    with open(f"{run}/sd/frontend.json") as file:
        target = json.load(file)[0]["targets"][0]
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=5) as answer, open(path, "wb") as file:
        file.write(answer.read())


def prompt_tokens(binary, before, after):
    arguments = ["--before", before, "--after", after, "--elapsed", "180", "--model", "tiny"]
    answer = subprocess.run([binary, "plan", *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    window = json.loads(answer)["models"][0]["observation"]
    return window["requests"] * window["input_tokens"]


def start(binary, text):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "config.yaml")
    with open(path, "w") as file:
        file.write(text)
    log = open(os.path.join(folder, "log.json"), "w+")
    process = subprocess.Popen([binary, "--log-format", "json", "run", "--config", path], stderr=log)
    for _ in range(100):
        time.sleep(0.1)
        log.seek(0)
        for line in log:
            fields = json.loads(line).get("fields", {})
            if fields.get("message") == "started":
                return process, fields["address"]
        if process.poll() is not None:
            log.seek(0)
            sys.exit("the exporter ended:\n" + log.read())
    sys.exit("the exporter did not say that it started")


def compare(testbed, binary, mode):
    fleet, pools, changes = MODES[mode]
    run = os.environ.get("TESTBED_RUN") or os.path.expanduser("~/.cache/planner-testbed/run")
    subprocess.run([f"{testbed}/up.sh", *fleet, "--speedup", "0.2"], check=True, stdout=subprocess.DEVNULL)
    exporter, address = start(binary, config(run, pools))
    try:
        windows = Windows(address)
        windows.wait(2.5 * WINDOW)
        windows.seen.clear()
        before, after = (os.path.join(tempfile.mkdtemp(), name) for name in ("before.prom", "after.prom"))
        page(run, before)
        load = subprocess.Popen(
            [f"{testbed}/load.py", "--rate", "4", "--isl", "200:800", "--osl", "20:100", "--duration", "60", "--seed", "7"],
            stdout=subprocess.PIPE,
        )
        begin = time.monotonic()
        for at, role, count in changes:
            windows.wait(max(0.0, begin + at - time.monotonic()))
            scaling = subprocess.Popen([f"{testbed}/scale.sh", role, str(count)], stdout=subprocess.DEVNULL)
            while scaling.poll() is None:
                windows.wait(0.5)
        while load.poll() is None:
            windows.wait(0.5)
        windows.wait(2.5 * WINDOW)
        page(run, after)
        return judge(mode, json.load(load.stdout), windows, prompt_tokens(binary, before, after))
    finally:
        exporter.terminate()
        exporter.wait()
        subprocess.run([f"{testbed}/down.sh"], stdout=subprocess.DEVNULL)


def judge(mode, client, windows, prompts):
    busy = [window for window in windows.seen if window["requests"]]
    total = lambda weight: sum(window["requests"] * weight(window) for window in busy)
    requests = total(lambda window: 1.0)
    found = {
        "requests": (requests, client["ok"], 0.0, 0.0),
        "prompt tokens": (prompts, client["prompt_tokens"]["mean"] * client["ok"], 0.5, 0.0),
        "output tokens": (total(lambda w: w["output_tokens"]), client["completion_tokens"]["mean"] * client["ok"], 0.5, 0.0),
        "TTFT": (total(lambda w: w["ttft_seconds"]) / requests, client["ttft"]["mean"], 0.003, 0.02),
        "ITL": (
            total(lambda w: w["itl_seconds"] * (w["output_tokens"] - 1)) / total(lambda w: w["output_tokens"] - 1),
            client["itl"]["mean"],
            0.0,
            0.02,
        ),
    }
    # A worker that is removed may take a request with it; what was not answered is nobody's to count.
    good = client["ok"] >= 0.98 * client["n"]
    print(f"{mode}: {client['ok']} of {client['n']} requests answered, {len(busy)} windows; replicas seen:", end=" ")
    print(", ".join(f"{pool} {sorted(set(c for c in counts if c is not None))}" for pool, counts in windows.counts.items()))
    for what, (ours, theirs, absolute, relative) in found.items():
        within = abs(ours - theirs) <= absolute + relative * theirs
        good &= within
        print(f"  {what:14} exporter {ours:12.5f}  client {theirs:12.5f}  {'ok' if within else 'DIFFERS'}")
    return good


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    results = [compare(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), mode) for mode in MODES]
    sys.exit(0 if all(results) else 1)
