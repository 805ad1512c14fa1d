"""What mypy must know of the commands as functions: `make types` reads this file, and an ignore that is not needed is an error."""

import gpuready

ANSWER: gpuready.Result = gpuready.check("vllm", on="h100", driver="550")
EXIT: int = ANSWER.exit
JSON: str = gpuready.fit("m").json()
gpuready.check("vllm", on=3)  # type: ignore[arg-type]
gpuready.explain(4)  # type: ignore[arg-type]
gpuready.check("vllm", driver=550)  # type: ignore[arg-type]
