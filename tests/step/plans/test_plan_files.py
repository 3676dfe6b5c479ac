"""Plan files of other frameworks: small ones, and the settings that they stand for, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import paleo
from paleo.step.declarations import declared
from paleo.step.plans import PLAN_FORMATS
from paleo.step.plans.merge import Planned
from paleo.step.scenario import SimulateSettings, scenario

Read = Callable[..., Planned]

#: Two nodes of 8 devices: 16 = tp 4 x pp 2 x dp 2, and 32 layers = pp 2 x 4 chunks of 4.
SCRIPT = """#!/bin/bash
# It doesn't matter what stands here: --tensor-model-parallel-size 64
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-2}
WORLD_SIZE=$(($GPUS_PER_NODE * $NNODES))
CHECKPOINT=$1
LAUNCH=(
    --nproc_per_node $GPUS_PER_NODE  # all of a node
    --nnodes "$NNODES"
)
MODEL="
    --num-layers 32 --hidden-size 4096 \\
    --seq-length 2048 --bf16
"
PARALLEL=(--tensor-model-parallel-size 4 --pipeline-model-parallel-size=2)
PARALLEL+=(--num-layers-per-virtual-pipeline-stage 4 --sequence-parallel)
mkdir -p "$CHECKPOINT" && torchrun ${LAUNCH[@]} pretrain_gpt.py \\
    $MODEL "${PARALLEL[@]}" --save $CHECKPOINT \\
    --micro-batch-size 1 --global-batch-size $((WORLD_SIZE*4)) \\
    --recompute-activations --use-distributed-optimizer --overlap-grad-reduce \\
    --lr 3e-4 --clip-grad 0.0
"""


def test_a_script_for_megatron(read: Read) -> None:
    plan = read(SCRIPT)
    assert (plan.format, plan.seq_len, plan.notes) == ("megatron", 2048, ())
    assert plan.settings == {
        "framework": "megatron",
        "workers": 16,
        "tp": 4,
        "pp": 2,
        "interleave": 4,
        "sequence_parallel": True,
        "micro_batch": 1,
        "global_batch": 64,
        "recompute": "selective",
        "zero": 1,
        "overlap": True,
        "dtype": "mixed_bf16",
        "optimizer": "fused_adam",
        "clip_gradients": False,
    }


def test_a_line_for_megatron_leaves_devices_open(read: Read) -> None:
    plan = read("--micro-batch-size 2 --global-batch-size 64 --fp16 --optimizer sgd $MORE")
    assert plan.settings == {
        "framework": "megatron",
        "micro_batch": 2,
        "global_batch": 64,
        "dtype": "mixed_fp16",
        "scale_loss": True,
        "optimizer": "momentum",
        "clip_gradients": True,
        "overlap": False,
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "full",
        ),
        ("--recompute-granularity selective", "selective"),
        ("--checkpoint-activations", "full"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 0", "none"),
    ],
)
def test_recomputation_of_megatron(read: Read, line: str, expected: str) -> None:
    plan = read(f"--micro-batch-size 1 {line}")
    assert (plan.settings["recompute"], plan.notes) == (expected, ())


@pytest.mark.parametrize(
    ("line", "stages"),
    [
        # 30 layers are 6 + 10 + 10 + 4 or 8 + 8 + 8 + 6; with what is accounted for they are 32,
        # 8 a stage, of which the first has an embedding and the last a loss.
        (
            "--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 4",
            (6, 10, 10, 4),
        ),
        ("--decoder-last-pipeline-num-layers 6", (8, 8, 8, 6)),
        (
            "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
            (7, 8, 8, 7),
        ),
    ],
)
def test_layers_of_stages_of_megatron(read: Read, line: str, stages: tuple[int, ...]) -> None:
    plan = read(f"--pipeline-model-parallel-size 4 --num-layers 30 {line}")
    assert plan.settings["stages"] == stages


def test_what_is_not_modelled_or_understood_is_listed(read: Read) -> None:
    plan = read(
        "--tensor-model-parallel-size 2 --fp4-format e2m1 --tp-comm-overlap --frobnicate 3 "
        "--optimizer novograd --cp-comm-type a2a+p2p --context-parallel-size 2"
    )
    assert plan.notes == (
        (
            "plan: overlap_grad_reduce is off: what no other message hides is not modelled, the "
            "exchange of gradients is taken to overlap"
        ),
        "plan: not modelled: --cp-comm-type a2a+p2p, taken for p2p",
        "plan: not modelled: --optimizer novograd, taken for Adam",
        (
            "plan: not modelled: --fp4-format (products in fp4), --tp-comm-overlap (messages split "
            "among the tiles of products)"
        ),
        "plan: not understood: --frobnicate",
    )


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        ("--bf16 --fp8-format hybrid", "mixed_fp8_delayed"),  # the default of --fp8-recipe
        ("--bf16 --fp8-format e4m3 --fp8-recipe blockwise", "mixed_fp8_blockwise"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-amax-history-len 1024", "mixed_mxfp8"),
        ("--bf16 --fp8-recipe tensorwise", "mixed_bf16"),  # which is not switched on
    ],
)
def test_fp8_of_megatron_is_an_element_type(read: Read, line: str, dtype: str) -> None:
    plan = read(f"--micro-batch-size 1 --overlap-grad-reduce {line}")
    assert (plan.settings["dtype"], plan.notes) == (dtype, ())


def test_fp8_that_is_not_known_is_a_note(read: Read) -> None:
    plan = read(
        "--micro-batch-size 1 --overlap-grad-reduce --bf16 --fp8-format e4m3 --fp8-recipe custom"
    )
    assert plan.settings["dtype"] == "mixed_bf16"
    assert plan.notes == ("plan: not modelled: --fp8-recipe custom: give --dtype",)
    plan = read("--micro-batch-size 1 --overlap-grad-reduce --fp16 --fp8-format hybrid")
    assert plan.settings["dtype"] == "mixed_fp16"
    (note,) = plan.notes
    assert note.startswith("plan: not modelled: --fp8-format: products in fp8 with mixed_fp16")


@pytest.mark.parametrize(
    ("sections", "dtype", "notes"),
    [
        ("[model]\nconverters = ['float8']\n", "mixed_fp8_tensorwise", 0),
        ("[float8]\nenable_float8_linear = true\n", "mixed_fp8_tensorwise", 0),
        (
            (
                "[model]\nconverters = ['quantize.linear.float8']\n"
                "[quantize.linear.float8]\nrecipe_name = 'rowwise'\nfilter_fqns = ['output']\n"
            ),
            "mixed_fp8_tensorwise",
            1,  # of rows
        ),
        (
            (
                "[model]\nconverters = ['quantize.linear.mx']\n"
                "[quantize.linear.mx]\nrecipe_name = 'mxfp8_cublas'\n"
            ),
            "mixed_mxfp8",
            0,
        ),
        ("[model]\nconverters = []\n", "mixed_bf16", 0),
    ],
)
def test_fp8_of_torchtitan(read: Read, sections: str, dtype: str, notes: int) -> None:
    plan = read(f"[training]\nlocal_batch_size = 1\n{sections}")
    assert plan.settings["dtype"] == dtype
    assert len(plan.notes) == notes


def test_places_of_experts_of_megatron(read: Read) -> None:
    line = "--micro-batch-size 1 --overlap-grad-reduce --moe-expert-capacity-factor 1.25"
    plan = read(f"{line} --moe-pad-expert-input-to-capacity")
    assert (plan.settings["expert_capacity"], plan.notes) == (1.25, ())
    plan = read(line)
    assert "expert_capacity" not in plan.settings
    (note,) = plan.notes
    assert "not modelled: --moe-expert-capacity-factor" in note


def test_a_framework_that_is_given_wins(read: Read) -> None:
    assert "framework" not in read("--micro-batch-size 1", framework="pytorch").settings


def test_yaml_of_megatron(read: Read) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    plan = read(
        "language_model:\n  num_layers: 24\n  fp8: null\n  recompute_granularity: full\n"
        "model_parallel:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 4\n"
        "  virtual_pipeline_model_parallel_size: 3\n  sequence_parallel: True\n  bf16: True\n"
        "  fp16: False\nmicro_batch_size: 2\nglobal_batch_size: 128\nseq_length: 4096\n"
        "use_distributed_optimizer: True\noverlap_grad_reduce: True\nlr: 2.5e-4\nnum_workers: 2\n"
    )
    assert (plan.format, plan.seq_len, plan.notes) == ("megatron", 4096, ())
    assert plan.settings == {
        "framework": "megatron",
        "tp": 2,
        "pp": 4,
        "interleave": 3,
        "sequence_parallel": True,
        "micro_batch": 2,
        "global_batch": 128,
        "recompute": "full",
        "zero": 1,
        "overlap": True,
        "dtype": "mixed_bf16",
        "optimizer": "fused_adam",
        "clip_gradients": True,
    }


DEEPSPEED: dict[str, Any] = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "fp16": {"enabled": "auto", "loss_scale": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 5e8},
    "wall_clock_breakdown": False,
}


def test_deepspeed_says_how_many_devices_there_are(read: Read) -> None:
    plan = read(DEEPSPEED)  # 64 = 2 x 4 x 8
    assert (plan.format, plan.seq_len, plan.notes) == ("deepspeed", None, ())
    assert plan.settings == {
        "framework": "deepspeed",
        "workers": 8,
        "global_batch": 64,
        "micro_batch": 2,
        "dtype": "mixed_bf16",
        "optimizer": "fused_adam",
        "clip_gradients": True,
        "zero": 2,
        "overlap": True,
        "bucket": 2_000_000_000,
    }
    # As many shares of the data, each of which two devices have.
    assert read(DEEPSPEED, tp=2).settings["workers"] == 16


def test_two_of_the_batches_of_deepspeed_give_the_third(read: Read) -> None:
    whole = {"train_batch_size": 64, "gradient_accumulation_steps": 4}
    assert read(whole, workers=[8]).settings["micro_batch"] == 2
    assert read(whole).notes == (
        "plan: gradient_accumulation_steps has no effect without --num_workers",
    )
    own = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}
    assert read(own).settings == {"framework": "deepspeed", "micro_batch": 2, "batch_size": 8}


def test_other_settings_of_deepspeed(read: Read) -> None:
    plan = read(
        {
            "train_micro_batch_size_per_gpu": 1,
            "fp16": {"enabled": True},
            "optimizer": {"type": "Adam", "params": {"torch_adam": True}},
            "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}},
            "pipeline": {"stages": 2, "activation_checkpoint_interval": 1},
            "sequence_parallel_size": 2,
            "mystery": {"inner": 1},
        }
    )
    assert plan.settings == {
        "framework": "deepspeed",
        "micro_batch": 1,
        "batch_size": 1,
        "pp": 2,
        "cp": 2,
        "context": "all_to_all",
        "recompute": "full",
        "dtype": "mixed_fp16",
        "scale_loss": True,
        "optimizer": "adam",
        "zero": 1,
        "overlap": False,
        "offload": ("optimizer", "gradients"),
    }
    assert plan.notes == ("plan: not understood: mystery.inner",)


@pytest.mark.parametrize(
    ("zero", "said"),
    [
        ({"stage": 2, "cpu_offload": True}, ("optimizer", "gradients")),
        ({"stage": 3, "offload_optimizer": {"device": "nvme"}}, ("optimizer", "gradients")),
        ({"stage": 2, "offload_optimizer": {"device": "none"}}, None),
        ({"stage": 0, "offload_optimizer": {"device": "cpu"}}, None),
    ],
)
def test_what_of_deepspeed_is_on_the_host(read: Read, zero: Any, said: Any) -> None:
    plan = read({"bf16": {"enabled": True}, "zero_optimization": zero})
    assert plan.settings.get("offload") == said
    assert any("nvme, taken for cpu" in note for note in plan.notes) is ("nvme" in str(zero))


def test_what_of_megatron_is_on_the_host(read: Read) -> None:
    command = "torchrun train.py --tensor-model-parallel-size 1 --optimizer-cpu-offload"
    plan, half = (read(command + more) for more in ("", " --optimizer-offload-fraction 0.5"))
    assert plan.settings["offload"] == half.settings["offload"] == ("optimizer",)
    assert not any("offload" in note for note in plan.notes)
    assert any("optimizer-offload-fraction: all of the state" in note for note in half.notes)


TITAN = """
[job]
dump_folder = "./outputs"
[training]
local_batch_size = 4
global_batch_size = 64
seq_len = 8192
max_norm = 1.0
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = 8
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_microbatch_size = 2
context_parallel_degree = 1
[activation_checkpoint]
mode = "none"
[optimizer]
name = "AdamW"
implementation = "foreach"
[compile]
enable = true
"""


def test_torchtitan(read: Read) -> None:
    plan = read(TITAN)
    assert (plan.format, plan.seq_len) == ("torchtitan", 8192)
    assert plan.settings == {
        "framework": "torchtitan",
        "workers": 8 * 2 * 2,
        "tp": 2,
        "pp": 2,
        "cp": 1,
        "sequence_parallel": True,
        "schedule": "1f1b",
        "interleave": 2,
        "micro_batch": 2,
        "global_batch": 64,
        "zero": 2,  # with stages, parameters stay gathered
        "dtype": "mixed_bf16",
        "recompute": "none",
        "optimizer": "adamw",
        "optimizer_kernels": "foreach",
        "clip_gradients": True,
        "compile": True,
    }
    # A share of the data has 8 samples, and 4 pass the pipeline at once.
    assert plan.notes == (
        (
            "plan: not modelled: training.local_batch_size: the pipeline is filled anew for each 4 "
            "of 8 samples; here for all of them once"
        ),
    )


@pytest.mark.parametrize(
    ("text", "shards"),
    [
        # 8 of 2 x 8 shares of the data, each of which 2 devices have by positions.
        (TITAN.replace("replicate_degree = 1", "replicate_degree = 2"), 8),
        (
            TITAN.replace("replicate_degree = 1", "replicate_degree = 2").replace(
                "context_parallel_degree = 1", "context_parallel_degree = 2"
            ),
            16,
        ),
        # 32 devices have the same layers, in 4 groups.
        (
            (
                "torchrun --nproc_per_node 8 --nnodes 8 train.py --use-distributed-optimizer "
                "--tensor-model-parallel-size 2 --num-distributed-optimizer-instances 4"
            ),
            8,
        ),
        ('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "mics_shard_size": 8}}', 8),
        (
            '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "mics_shard_size": -1}}',
            0,
        ),
        ('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 0, "mics_shard_size": 8}}', 0),
    ],
)
def test_groups_that_divide_shares_among_them(read: Read, text: str, shards: int) -> None:
    plan = read(text)
    assert plan.settings.get("shard_degree", 0) == shards
    assert not any("shard" in note or "instances" in note for note in plan.notes)


def test_older_names_of_torchtitan(read: Read) -> None:
    plan = read(
        "[training]\nbatch_size = 2\nseq_len = 4096\ntensor_parallel_degree = 4\n"
        "data_parallel_degree = -1\ncompile = false\nwarmup_steps = 10\n"
        "[experimental]\npipeline_parallel_degree = 1\ncontext_parallel_degree = 2\n"
        "[activation_checkpoint]\nmode = 'full'\n"
    )
    assert plan.settings == {
        "framework": "torchtitan",
        "tp": 4,
        "pp": 1,
        "cp": 2,
        "sequence_parallel": True,
        "micro_batch": 2,
        "batch_size": 2,
        "zero": 3,
        "dtype": "mixed_bf16",
        "recompute": "full",
        "optimizer": "adamw",
        "clip_gradients": True,
        "compile": False,
    }
    assert plan.notes == ()


NEMO = """
_target_: nemo.collections.llm.api.pretrain
trainer:
  num_nodes: 4
  devices: 8
  plugins: {_target_: some.MegatronMixedPrecision, precision: bf16-mixed}
  strategy:
    tensor_model_parallel_size: 4
    pipeline_model_parallel_size: 2
    virtual_pipeline_model_parallel_size: 4
    context_parallel_size: 2
    expert_model_parallel_size: 1
    sequence_parallel: true
    ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true}
model:
  config: {seq_length: 8192, num_layers: 32, recompute_granularity: null}
data: {seq_length: 8192, micro_batch_size: 1, global_batch_size: 64}
optim: {config: {optimizer: adam, lr: 3e-4, bf16: true}}
log: {name: some, explicit: {global_batch_size: 3}}
"""


def test_a_recipe_of_nemo(read: Read) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    plan = read(NEMO)
    assert (plan.format, plan.seq_len, plan.notes) == ("nemo", 8192, ())
    assert plan.settings == {
        "framework": "megatron",
        "workers": 32,
        "tp": 4,
        "pp": 2,
        "interleave": 4,
        "cp": 2,
        "ep": 1,
        "sequence_parallel": True,
        "micro_batch": 1,
        "global_batch": 64,
        "zero": 1,
        "overlap": True,
        "dtype": "mixed_bf16",
        "optimizer": "fused_adam",
        "clip_gradients": True,
    }


def test_a_file_of_nemo_1(read: Read) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    plan = read(
        "trainer:\n  num_nodes: 2\n  devices: 8\n  precision: bf16\n  gradient_clip_val: 1.0\n"
        "model:\n  micro_batch_size: 4\n  global_batch_size: 256\n  tensor_model_parallel_size: 2\n"
        "  pipeline_model_parallel_size: 1\n  encoder_seq_length: 2048\n"
        "  ffn_hidden_size: ${multiply:4, ${.hidden_size}}\n  sequence_parallel: False\n"
        "  activations_checkpoint_granularity: full\n  activations_checkpoint_method: block\n"
        "  activations_checkpoint_num_layers: 0\n  optim:\n    name: distributed_fused_adam\n"
        "    lr: 6e-4\n  data:\n    seq_length: ${model.encoder_seq_length}\n"
    )
    assert (plan.format, plan.seq_len) == ("nemo", 2048)
    assert plan.settings == {
        "framework": "megatron",
        "workers": 16,
        "tp": 2,
        "pp": 1,
        "sequence_parallel": False,
        "micro_batch": 4,
        "global_batch": 256,
        "recompute": "none",
        "zero": 1,
        "dtype": "mixed_bf16",
        "optimizer": "fused_adam",
        "clip_gradients": True,
    }


def test_one_stage_that_is_given_has_no_chunks(read: Read) -> None:
    plan = read(SCRIPT, pp=1)
    assert "interleave" not in plan.settings
    assert plan.settings["workers"] == 16  # of which 4 have tp, and 4 shares of the data
    assert plan.notes == (
        "plan: --pipeline-model-parallel-size says pp 2, but 1 is given and counts",
    )


def test_what_is_given_counts_more(read: Read) -> None:
    plan = read(SCRIPT, tp=2, micro_batch=1, workers=[32], batch_size=8)
    assert not {"tp", "workers", "global_batch"} & plan.settings.keys()
    assert plan.notes == (
        "plan: --tensor-model-parallel-size says tp 4, but 2 is given and counts",
        "plan: --nproc_per_node says num_workers 16, but 32 is given and counts",
        "plan: --global-batch-size has no effect: batch_size is given",
    )


@pytest.mark.parametrize("name", list(PLAN_FORMATS))
def test_tables_of_formats(name: str) -> None:
    """Settings are those of `simulate`, no key of one is passed over, and keys have a source."""
    keys, known = PLAN_FORMATS[name].keys, declared(SimulateSettings)
    assert keys.source
    assert {*keys.settings.values(), *keys.defaults} <= known.keys()
    assert not [key for key in keys.settings if keys.is_quiet(key)]
    assert not [key for key in keys.aliases if key in keys.settings]


def test_a_scenario_is_of_the_file(read: Read) -> None:
    read({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}})
    found = scenario("gpt2", plan="plan", workers=4, cluster="dgx_a100")
    assert (found.plan.zero, found.plan.micro_batch, found.batch_size) == (1, 2, 2)
    assert (found.parallel, found.workers, found.notes) == ("mesh", (4,), ())
    assert found.changed(zero=0).plan.zero == 0


def test_the_length_of_sequences_is_the_files(read: Read) -> None:
    read("--micro-batch-size 1 --seq-length 512")
    assert scenario("gpt2", plan="plan").net.dims["seq"] == 512
    assert scenario("gpt2", plan="plan").notes == ()
    given = paleo.ImportOptions(dims={"seq": 256})
    found = scenario("gpt2", plan="plan", importing=given)
    assert found.net.dims["seq"] == 256
    assert found.notes == ("plan: sequences of 512, but the net has 256, which counts",)
    assert scenario(paleo.load("gpt2"), plan="plan").net.dims["seq"] == 1024
    assert scenario("alex_v2", plan="plan").notes == (
        "plan: sequences of 512, but the net has no dimension seq",
    )


def test_a_simulation_says_what_the_file_left_open(read: Read) -> None:
    read("--micro-batch-size 1 --frobnicate")
    (run,) = paleo.simulate("alex_v2", plan="plan", workers=2, cluster="dgx_a100").runs
    assert "plan: not understood: --frobnicate" in run.notes
