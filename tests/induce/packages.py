"""Packages in versions that do not fit, and binaries made for other ones."""

from __future__ import annotations

from tests.induce.scripts import LLAMA, PLAIN
from tests.induce.stage import Provoke

CONFIG = '{"architectures": ["%sForCausalLM"], "model_type": "%s", "hidden_size": 64, "vocab_size": 512}\n'
LOAD = (
    PLAIN
    + """
from transformers import AutoConfig, AutoModelForCausalLM
config = AutoConfig.from_pretrained("model")
model = AutoModelForCausalLM.from_config(config)
log.info("model %s", type(model).__name__)
"""
)
NATIVE = r"""
#include <torch/extension.h>
torch::Tensor fwd(torch::Tensor q) { TORCH_CHECK(q.dim() == 4, "q must have 4 dimensions, not ", q.dim()); return q * 2; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("fwd", &fwd); }
"""
BUILD_ELSEWHERE = (
    "inc=$(ls -d {other}/lib/python3*/site-packages/torch/include); py=$(python -c 'import sysconfig; "
    'print(sysconfig.get_paths()["include"])\'); g++ -O0 -shared -fPIC -std=c++17 -D_GLIBCXX_USE_CXX11_ABI=0 '
    "-DTORCH_EXTENSION_NAME={name} -I$inc -I$inc/torch/csrc/api/include -I$py native.cpp -o {place} -Wl,--no-as-needed -L$inc/../lib -lc10 -ltorch_cpu -ltorch_python "
    "2>build.log; "
    "python train.py"
)
FUTURE = """
gcc -shared -fPIC -x c - -o {soname} -Wl,-soname,{soname} -Wl,--version-script=future.map <<'C'
int made_for_a_newer_system(void) {{ return 1; }}
C
inc=$(python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
gcc -shared -fPIC -I$inc native.c -o {module} -Wl,--no-as-needed ./{soname} && rm {soname}
python train.py
"""
FUTURE_C = """
#include <Python.h>
int made_for_a_newer_system(void);
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "%s", 0, -1, 0};
PyMODINIT_FUNC PyInit_%s(void) { made_for_a_newer_system(); return PyModule_Create(&module); }
"""


def future(name: str, cause: str, soname: str, version: str, module: str) -> Provoke:
    """A module that needs a symbol version which this machine's system library has not got."""
    return Provoke(name, cause, (rf"version `{version}' not found \(required by",), PLAIN + f"import {module}\n",
                   FUTURE.format(soname=soname, module=f"{module}.so"), room="bare" if "bare" in name else "main",
                   files={"native.c": FUTURE_C % (module, module), "future.map": version + " { made_for_a_newer_system; };\n"},
                   needs=("gcc",))  # fmt: skip


def importing(name: str, cause: str, decisive: str, source: str, **more: object) -> Provoke:
    return Provoke(name, cause, (decisive,), PLAIN + source + "\n", **more)  # type: ignore[arg-type]


ABI = (
    future("abi-glibc", "glibc-too-old", "libc.so.6", "GLIBC_2.99", "fused_adam"),
    future("abi-glibc-2.43", "glibc-too-old", "libm.so.6", "GLIBC_2.43", "vllm_flash"),
    future("abi-glibcxx", "glibcxx-too-old", "libstdc++.so.6", "GLIBCXX_3.4.35", "paged_ops"),
    future("abi-cxxabi", "glibcxx-too-old", "libstdc++.so.6", "CXXABI_1.3.17", "spm_native"),
    Provoke("abi-flash-attn", "flash-attn-abi", (r"flash_attn_2_cuda.*undefined symbol: _ZN",), PLAIN + """
from flash_attn import flash_attn_func
""", BUILD_ELSEWHERE.replace("{name}", "flash_attn_2_cuda").replace("{place}", "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"),
            files={"native.cpp": NATIVE, "flash_attn/__init__.py": "from flash_attn.flash_attn_interface import flash_attn_func\n",
                   "flash_attn/flash_attn_interface.py": "import torch\nimport flash_attn_2_cuda as flash_attn_gpu\n"
                   "flash_attn_func = flash_attn_gpu.fwd\n"}, needs=("g++",), also="old", deadline=240),
    Provoke("abi-extension", "ext-abi-mismatch", (r"undefined symbol: _ZN",), PLAIN + "import fused_rotary\n",
            BUILD_ELSEWHERE.replace("{name}", "fused_rotary").replace("{place}", "fused_rotary.so"),
            files={"native.cpp": NATIVE}, needs=("g++",), also="old", deadline=240),
    Provoke("abi-extension-newer", "ext-abi-mismatch", (r"undefined symbol: _Z",), PLAIN + "import paged_attention_ops\n",
            BUILD_ELSEWHERE.replace("{name}", "paged_attention_ops").replace("{place}", "paged_attention_ops.so").replace(
                "-std=c++17 -D_GLIBCXX_USE_CXX11_ABI=0", "-std=c++20"),
            files={"native.cpp": NATIVE}, needs=("g++",), room="old", also="main", deadline=300),
    importing("abi-torchvision", "torchvision-mismatch", r"operator torchvision::nms does not exist|undefined symbol|partially initialized",
              "import torchvision", room="torchvision-0.20"),
    importing("abi-torchvision-ops", "torchvision-mismatch", r"Couldn't load custom C\+\+ ops|torchvision::nms", """
import torchvision
boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0]])
torchvision.ops.nms(boxes, torch.ones(1), 0.5)
""", room="torchvision-0.16"),
    importing("abi-torchaudio", "torchvision-mismatch", r"undefined symbol|OSError|RuntimeError|AttributeError", "import torchaudio",
              room="torchaudio-2.1"),
    importing("abi-nccl", "nccl-lib-mismatch", r"undefined symbol: nccl", "print('ok')", room="cuda-nccl"),
    importing("abi-nvjitlink", "nvjitlink-mismatch", r"undefined symbol: __?nvJitLink", "print('ok')", room="cuda-jitlink"),
    importing("abi-cudnn", "cudnn-mismatch", r"libcudnn\.so\.9|cuDNN", "print('ok')", room="cuda-cudnn"),
    importing("abi-numpy2-torch", "numpy2-abi", r"compiled using NumPy 1\.x cannot be run in", """
model = nn.Linear(8, 8)
log.info("%s", model(torch.randn(2, 8)).detach().numpy())
""", room="old-numpy2"),
    importing("abi-numpy2-pandas", "numpy2-abi", r"numpy\.dtype size changed|compiled using NumPy 1\.x|_ARRAY_API", "import pandas",
              room="old-numpy2"),
    importing("abi-numpy2-removed-name", "numpy2-abi", r"was removed in the NumPy 2\.0 release", """
import numpy as np
score = np.float_(1.0)
"""),
)  # fmt: skip

VERSIONS = (
    *(Provoke(f"type-unknown-{kind}", "transformers-too-old", (r"does not recognize this architecture|model type `\w+`|KeyError: '",), LOAD,
              files={"model/config.json": CONFIG % (kind.title(), kind)}, room=room)
      for kind, room in (("qwen3", "transformers-4.46"), ("gemma3_text", "transformers-4.46"), ("qwen2_moe", "transformers-4.36"),
                         ("olmo9", "main"), ("llama4", "old"))),
    importing("hub-too-new", "hf-hub-version", r"huggingface-hub>=.* is required|cannot import name .* from 'huggingface_hub", """
from transformers import AutoModel
""", room="transformers-4.46-alone"),
    importing("hub-name-gone", "hf-hub-version", r"cannot import name 'cached_download' from 'huggingface_hub'", """
from huggingface_hub import cached_download, hf_hub_url
"""),
    importing("trl-tokenizer-argument", "trl-api-change", r"unexpected keyword argument 'tokenizer'", """
from transformers import AutoTokenizer
from trl import SFTTrainer
SFTTrainer(model="model", tokenizer=None, train_dataset=None)
"""),
    importing("trl-max-seq-length", "trl-api-change", r"unexpected keyword argument 'max_seq_length'", """
from trl import SFTConfig
SFTConfig(output_dir="out", max_seq_length=512, packing=False)
"""),
    importing("trl-old", "trl-api-change", r"unexpected keyword argument|ImportError: |AttributeError: ", """
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
import datasets
from trl import SFTTrainer
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
rows = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3]] * 4})
SFTTrainer(model=LlamaForCausalLM(config), args=TrainingArguments(output_dir="out", use_cpu=True), train_dataset=rows,
           dataset_text_field="text", max_seq_length=16, tokenizer=object())
""", room="trl-0.8"),
    Provoke("trainer-evaluation-strategy", "trl-api-change", (r"unexpected keyword argument 'evaluation_strategy'",), PLAIN + """
from transformers import TrainingArguments
TrainingArguments(output_dir="out", evaluation_strategy="steps", eval_steps=10)
"""),
    Provoke("trainer-tokenizer", "trl-api-change", (r"unexpected keyword argument 'tokenizer'",), LLAMA + """
from transformers import Trainer, TrainingArguments
Trainer(model=LlamaForCausalLM(config), args=TrainingArguments(output_dir="out"), tokenizer=None)
"""),
    Provoke("accelerate-too-old", "peft-accelerate-version", (r"accelerate>=|cannot import name .*accelerate",), LLAMA + """
from transformers import Trainer, TrainingArguments
Trainer(model=LlamaForCausalLM(config), args=TrainingArguments(output_dir="out", use_cpu=True))
""", room="accelerate-0.31"),
    importing("peft-accelerate", "peft-accelerate-version", r"ImportError: cannot import name", "from peft import LoraConfig, get_peft_model",
              room="accelerate-0.31"),
    importing("bnb-triton-ops", "bnb-triton-mismatch", r"No module named 'triton\.ops'", "import bitsandbytes", room="cuda-bnb"),
    importing("deepspeed-too-old", "deepspeed-torch-mismatch", r"ImportError|ModuleNotFoundError|AttributeError", "import deepspeed",
              room="deepspeed-0.8"),
    importing("deepspeed-elastic-log", "deepspeed-torch-mismatch", r"ImportError|ModuleNotFoundError|AttributeError", "import deepspeed",
              room="deepspeed-0.14"),
    importing("missing-einops", "missing-python-package", r"No module named 'einops'", "from einops import rearrange", room="cuda"),
    importing("missing-sentencepiece", "missing-python-package", r"requires the \w+ library but it was not found|`tiktoken` is required", """
from transformers import T5Tokenizer, AutoTokenizer
open("tokenizer_config.json", "w").write('{"tokenizer_class": "LlamaTokenizer"}')
open("tokenizer.model", "wb").write(bytes(range(64)))
AutoTokenizer.from_pretrained(".")
"""),
    importing("missing-datasets", "missing-python-package", r"No module named 'datasets'", "import datasets", room="cuda"),
    importing("missing-tensorboard", "missing-python-package", r"[Tt]ensor[Bb]oard", """
from transformers import TrainingArguments, Trainer
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
args = TrainingArguments(output_dir="out", report_to="tensorboard", use_cpu=True)
Trainer(model=LlamaForCausalLM(config), args=args)
"""),
    importing("missing-soundfile", "missing-python-package", r"No module named '(librosa|soundfile)'", "import librosa"),
    importing("flash-attn-missing", "flash-attn-missing", r"ImportError: .*[Ff]lash", """
from transformers import LlamaConfig, AutoModelForCausalLM
config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
AutoModelForCausalLM.from_config(config, attn_implementation="flash_attention_2")
"""),
    importing("flash-attn-missing-4.46", "flash-attn-missing", r"ImportError: .*[Ff]lash", """
from transformers import LlamaConfig, AutoModelForCausalLM
config = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
AutoModelForCausalLM.from_config(config, attn_implementation="flash_attention_2", torch_dtype=torch.float16)
""", room="transformers-4.46"),
    importing("flash-attn-import", "flash-attn-missing", r"No module named 'flash_attn'", "from flash_attn import flash_attn_func"),
)  # fmt: skip
