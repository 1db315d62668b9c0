"""A pipeline for the live page, with texts that would do harm if a page took them for markup."""

from typing import Any

from jobqueue import phase, pipeline

NASTY = """<script>alert(1)</script><img src=x onerror="alert(2)"> 'quoted' "twice" &lt;b&gt; javascript:alert(3)"""
LONG = "Donaudampfschifffahrtsgesellschaftskapitän" * 4


def download(context: Any) -> None:
    for percent in range(0, 100, 10):
        context.progress(percent, f"part {percent // 10 + 1} of 10 {NASTY}")
        context.wait(0.15)


@phase(f"process {NASTY}"[:200])
def process(context: Any) -> None:
    for percent in range(0, 100, 10):
        context.progress(percent, f"{LONG} {percent}")
        context.wait(0.15)


def upload(context: Any) -> None:
    context.progress(50, "half of it")
    context.wait(60)


@pipeline(phases=[download, process, upload])
def publish(context: Any) -> None:
    """Download, process and upload; the last of it takes a minute."""
