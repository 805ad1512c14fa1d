"""vLLM or SGLang on a tiny random Llama that is written here: the engine starts and generates the model's tokens.

Argument: vllm or sglang. Greedy tokens are compared with the same weights in Transformers; random weights give
near ties, so each token's logit in the reference must be within a small gap of the best.
"""

import os

import package_import
import proof
import tiny_llama as tiny

COUNT = 8
MAX_LOGIT_GAP = 0.05  # as a share of the spread between the best and the mean logit


def run_proof(p):
    p.torch()
    folder = os.path.join(os.getcwd(), "model")
    engine = p.arguments[0]
    p.record_version(engine)
    check_engine(p, engine, folder, tiny.save_llama(p, folder))


def check_engine(p, engine, folder, model):
    """Start the engine on a folder and compare its tokens with the model."""
    prompts = [[tiny.BOS] + list(text.encode()) for text in tiny.SENTENCES]
    # One GPU, few cache blocks, no graphs: the engine is tested, not its speed.
    tokens = {"vllm": generate_with_vllm, "sglang": generate_with_sglang}[engine](p, folder, prompts)
    p.begin_step("compare with the model itself")
    check_tokens(p, model, prompts, tokens)


def generate_with_vllm(p, folder, prompts):
    package = package_import.import_compiled(p, "vllm", "vllm")
    p.begin_step("start the engine")
    words = {
        "model": folder,
        "dtype": "float16",
        "max_model_len": 128,
        "gpu_memory_utilization": memory_share(p),
        "enforce_eager": True,
        "seed": 0,
    }
    engine = package.LLM(**words)
    p.begin_step("generate")
    sampling = package.SamplingParams(temperature=0.0, max_tokens=COUNT, ignore_eos=True)
    outputs = engine.generate([{"prompt_token_ids": one} for one in prompts], sampling, use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in outputs]


def memory_share(p):
    """Return the memory fraction for the engine: up to 6 GiB, and no more than is free."""
    free, total = p.torch().cuda.mem_get_info(p.device)
    if free < 3 << 30:
        raise proof.Absent("less than 3 GiB of GPU memory are free", "gpu")
    return min(0.9, max(0.02, min(free, 6 << 30) / total))


def generate_with_sglang(p, folder, prompts):
    package = package_import.import_compiled(p, "sglang", "sglang")
    p.begin_step("start the engine")
    engine = package.Engine(
        model_path=folder,
        dtype="float16",
        context_length=128,
        mem_fraction_static=max(0.05, memory_share(p)),
        max_running_requests=8,
        disable_cuda_graph=True,
        random_seed=0,
        log_level="warning",
    )
    p.begin_step("generate")
    sampling = {"temperature": 0.0, "max_new_tokens": COUNT, "ignore_eos": True}
    outputs = engine.generate(input_ids=prompts, sampling_params=sampling)
    tokens = [list(one["output_ids"]) for one in outputs]
    engine.shutdown()
    return tokens


def check_tokens(p, model, prompts, tokens):
    """Check every token against the model's float64 logits for its prefix."""
    torch = p.torch()
    model = model.double().eval()
    p.record_number("answers", len(tokens), "equal", len(prompts))
    worst = 0.0
    for prompt, answer in zip(prompts, tokens):
        p.record_number("tokens", len(answer), "equal", COUNT)
        ids = torch.tensor([prompt + answer])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
        best = logits.max(1).values
        chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        worst = max(worst, float(((best - chosen) / (best - logits.mean(1))).max()))
    p.record_number("worst_gap", worst, "most", MAX_LOGIT_GAP)
