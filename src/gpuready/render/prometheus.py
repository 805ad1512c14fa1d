"""Reports as metrics for the textfile collector of Prometheus; labels of a GPU as DCGM's exporter has them."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuready.model import Facts, Report
from gpuready.model.visible_text import escape_unprintable

_VERDICTS = ("ready", "clear", "undecided", "not-ready")
_HELP = {
    "gpuready_verdict": "1 for the verdict of the last check",
    "gpuready_finding": "1 for each finding of the last check",
    "gpuready_undecided": "1 for each rule that could not be judged",
    "gpuready_gpu_info": "1 for each GPU that is visible",
}


def render_metrics(reports: Sequence[Report]) -> str:
    """A family at a time, as the format demands: ``gpuready_finding{Hostname="n1",code="GPU013",...} 1``."""
    samples: dict[str, dict[str, int]] = {name: {} for name in _HELP}
    for report in reports:
        about = {
            "Hostname": report.facts.host or "",
            "framework": report.contract.framework,
            "version": report.contract.version,
        }
        for verdict in _VERDICTS:
            samples["gpuready_verdict"][_labels(about, verdict=verdict)] = int(report.verdict == verdict)
        for finding in report.findings:
            samples["gpuready_finding"][_labels(about, code=finding.code, severity=finding.severity)] = 1
        for rule in report.undecided:
            samples["gpuready_undecided"][_labels(about, code=rule.code, severity=rule.severity)] = 1
        for labels in _list_gpus(report.facts):
            samples["gpuready_gpu_info"][_labels({"Hostname": about["Hostname"]}, **labels)] = 1
    lines = [line for name, rows in samples.items() if rows for line in _format_family(name, rows)]
    return "\n".join(lines) + "\n"


def _format_family(name: str, rows: dict[str, int]) -> Iterable[str]:
    yield f"# HELP {name} {_HELP[name]}"
    yield f"# TYPE {name} gauge"
    yield from (f"{name}{labels} {value}" for labels, value in rows.items())


def _list_gpus(facts: Facts) -> list[dict[str, str]]:
    columns = {"UUID": "gpu.uuid", "model_name": "gpu.name", "pci_bus_id": "gpu.pci"}
    values: dict[str, Any] = {label: facts.value_if_known(key) or () for label, key in columns.items()}
    lists = {label: found for label, found in values.items() if isinstance(found, (list, tuple))}
    count = max((len(found) for found in lists.values()), default=0)
    driver = {"DCGM_FI_DRIVER_VERSION": str(facts.value_if_known("driver.version") or "")}
    rows = [{label: str(found[at]) for label, found in lists.items() if at < len(found)} for at in range(count)]
    return [{"gpu": str(at), **row, **driver} for at, row in enumerate(rows)]


def _labels(about: dict[str, str], **more: str) -> str:
    """``{Hostname="n1",code="GPU013"}``; a quote or a backslash of a value is escaped, and what cannot be seen."""
    texts = {
        name: escape_unprintable(value).replace("\\", "\\\\").replace('"', '\\"')
        for name, value in (about | more).items()
    }
    return "{" + ",".join(f'{name}="{text}"' for name, text in texts.items()) + "}"
