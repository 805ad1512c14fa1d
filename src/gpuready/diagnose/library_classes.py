"""Classes that packages make and no user's script does: whose interface an error complains of, by the name alone."""

from gpuready.logs.lazy_regex import LazyRegex

_FAMILIES = (
    r"(?:Code|Open|Tiny|X|M|Flan|Ro|De|Distil|Al|Long)?(?:[Ll]lama|[Qq]wen|Mi[sx]tral|Ministral|Gemma|Phi|Falcon|GPT|Gpt|[Bb]ert|BERT|[Tt]5|Whisper|CLIP|Siglip|Deepseek|DeepSeek|Cohere|Olmo"
    r"|Glm|ChatGLM|Llava|Idefics|Mllama|Bloom|OPT|MPT|Starcoder|StableLm|Baichuan|InternLM|Yi|Mamba|Jamba|Granite|Nemotron|Bart|Pegasus|Blip|Wav2Vec2|XLMRoberta|Electra|ViT|Dinov2)"
)
_FAMILY_CLASS = LazyRegex(
    _FAMILIES
    + r"\w{0,30}(?:RotaryEmbedding|Attention|DecoderLayer|RMSNorm|MLP|Config|Tokenizer|TokenizerFast|Processor|ImageProcessor|FeatureExtractor|Model|For[A-Z]\w{4,40})$"
)
_EXACT_CLASSES = (
    ("transformers", LazyRegex(
        r"(?:Seq2Seq)?(?:Trainer|TrainingArguments)$|Auto(?:Model|Tokenizer|Config|Processor)\w{0,40}$|PreTrained(?:Model|Config|Tokenizer\w{0,10})$|PretrainedConfig$"
        r"|BitsAndBytesConfig$|GPTQConfig$|AwqConfig$|GenerationConfig$|(?:Dynamic|Static|Hybrid|EncoderDecoder|SlidingWindow|Quantized|Offloaded)\w{0,20}Cache$|TrainerState$|BatchFeature$")),
    ("trl", LazyRegex(r"(?:SFT|DPO|PPO|GRPO|KTO|ORPO|CPO|RLOO|Reward|GKD|BCO|XPO)(?:v2)?(?:Trainer|Config)$|AutoModelFor\w{5,20}WithValueHead$")),
    ("peft", LazyRegex(r"(?:Lora|LoRA|Peft|IA3|AdaLora|LoHa|LoKr|PromptTuning|PrefixTuning|PromptEncoder|VeRA|Vera|OFT|BOFT)(?:Model\w{0,40}|Config\w{0,20}|Layer|Linear)$")),
    ("torch", LazyRegex(r"(?:Adam|AdamW|SGD|Adamax|NAdam|RAdam|RMSprop|Adagrad|LBFGS|GradScaler|LambdaLR|CosineAnnealingLR|DeviceMesh|DTensor|ProcessGroup\w{0,10}|FakeTensor|DataLoader|Variable)$")),
    ("accelerate", LazyRegex(r"(?:Accelerator\w{0,10}|Accelerated(?:Optimizer|Scheduler)|PartialState|GradientAccumulationPlugin|DeepSpeedPlugin|FullyShardedDataParallelPlugin)$")),
    ("bitsandbytes", LazyRegex(r"(?:Linear(?:4bit|8bitLt|NF4|FP4)|Params4bit|Int8Params)$")),
    ("vllm", LazyRegex(r"(?:(?:Async)?EngineArgs|(?:Async)?LLM(?:Engine)?|SamplingParams|GuidedDecodingParams|PoolingParams|(?:Scheduler|Parallel|Cache|Vllm|LoRA)Config|GPUModelRunner)$")),
    ("datasets", LazyRegex(r"(?:Iterable)?Dataset(?:Dict|Info)?$|LazyRow$|LazyBatch$|ClassLabel$")),
    ("diffusers", LazyRegex(r"\w{2,60}(?:Diffusion\w{0,20}Pipeline|DiffusionPipeline)$|(?:FlowMatch|DDIM|DDPM|Euler|DPM|PNDM|LCM)\w{0,40}Scheduler$|UNet\dDCondition(?:Model|Output)$|VaeImageProcessor$|\w{0,30}AttnProcessor\w{0,12}$|\w{2,40}Transformer[23]DModel$|AutoencoderKL\w{0,20}$|FrozenDict$")),
    ("sentence_transformers", LazyRegex(r"SentenceTransformer\w{0,30}$|CrossEncoder$")),
    ("pytorch_lightning", LazyRegex(r"Lightning(?:Module|DataModule|CLI|Fabric)$|\w{0,30}(?:TensorBoard|Wandb|CSV)Logger$")),
    ("deepspeed", LazyRegex(r"(?:DeepSpeed\w{3,40}|FP16_\w{5,30}Optimizer|BF16_Optimizer)$")),
)  # fmt: skip
PARTS_OF_MODELS = LazyRegex(r"\w{2,60}(?:RotaryEmbedding|Attention|DecoderLayer|RMSNorm|MLP)$")
KEEPS_ATTRIBUTES = LazyRegex(
    r"\w{0,70}(?:Tokenizer|TokenizerFast|Config|Cache|Processor|Trainer|Arguments|Args|Accelerator|State|Plugin|FeatureExtractor)$"
)
"""Classes whose attributes are options: who asks for another one was written for another release. Of a model, it is as often a mistake."""


def package_of_class(name: str) -> str:
    """The package that makes a class of this name, where only one does; a user's own class may look like none of these."""
    found = next((package for package, pattern in _EXACT_CLASSES if pattern.match(name)), "")
    return found or ("transformers" if _FAMILY_CLASS.match(name) else "")
