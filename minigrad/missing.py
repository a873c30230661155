"""Names of PyTorch's modules that are not here, and what to write instead: imported when one is
asked for.
"""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

from .ops.advice import table

TORCH = table("""
FloatTensor           minigrad.tensor(data, dtype=np.float32)
DoubleTensor          minigrad.tensor(data, dtype=np.float64)
HalfTensor            minigrad.tensor(data, dtype=np.float16)
LongTensor            minigrad.tensor(data, dtype=np.int64)
IntTensor             minigrad.tensor(data, dtype=np.int32)
ShortTensor           minigrad.tensor(data, dtype=np.int16)
CharTensor            minigrad.tensor(data, dtype=np.int8)
ByteTensor            minigrad.tensor(data, dtype=np.uint8)
BoolTensor            minigrad.tensor(data, dtype=bool)
Generator             np.random.default_rng(seed), which every function that draws takes as generator=
Size                  tuple: x.shape is one
asarray               minigrad.tensor(data), which copies, or minigrad.Tensor(data), which shares memory with an array
autograd              minigrad.gradients(y, xs), and minigrad.grad, vjp, jvp, hvp, jacobian, hessian of functions
bartlett_window       np.bartlett(n)
bincount              np.bincount(x, weights)
binomial              minigrad.tensor(rng.binomial(n, p))
blackman_window       np.blackman(n)
block_diag            scipy.linalg.block_diag(*[x.data for x in xs]), or np.block
bool                  bool, as dtype
broadcast_tensors     np.broadcast_arrays(*xs)
bucketize             minigrad.searchsorted(boundaries, x)
cartesian_prod        np.stack(np.meshgrid(*xs, indexing="ij"), axis=-1).reshape(-1, len(xs))
cdist                 minigrad.norm(x[:, None] - y, axis=-1)
chain_matmul          np.linalg.multi_dot(xs)
combinations          x[np.array([*itertools.combinations(range(len(x)), r)])]
compile|jit           the function itself: there is nothing to compile
concat                minigrad.cat(xs)
cumulative_trapezoid  ((y[1:] + y[:-1]) / 2 * np.diff(x)).cumsum()
distributed           minigrad.start_parallel(...), minigrad.DataParallel or minigrad.MPIParallel
double                minigrad.float64
float                 minigrad.float32
half                  minigrad.float16
long                  minigrad.int64
int                   minigrad.int32
short                 minigrad.int16
empty_permuted|empty_strided|zeros_  minigrad.zeros(shape)
eye_                  minigrad.eye(n)
fft                   np.fft on x.data, which has no gradient: complex numbers have none here
fork|multiprocessing  minigrad.start_parallel(...)
frombuffer            minigrad.Tensor(np.frombuffer(buffer, dtype))
from_file             minigrad.Tensor(np.memmap(path, dtype))
func                  minigrad.grad, vjp, jvp, hvp, jacobian, hessian; there is no vmap: write the batch axis
get_default_dtype     float64: functions that make tensors take dtype=
get_device_module     nothing: everything is on the CPU
get_file_path         pathlib.Path
hamming_window        np.hamming(n)
hann_window           np.hanning(n)
histogramdd           np.histogramdd(x.data, bins)
hub                   nn.load(folder), which reads published models
onnx                  nn.save(folder, model), which others load
inference_mode        minigrad.no_grad()
initial_seed          minigrad.manual_seed(seed), and remember it
is_storage            isinstance(x.data, np.ndarray)
isreal                np.isreal(x)
kaiser_window         np.kaiser(n, beta)
load                  nn.load_weights(path, model), or np.load; pickles are not read
lobpcg                np.linalg.eigh(x)
normal                minigrad.randn(*shape) * std + mean
norm_except_dim       minigrad.norm(v, axis=...)
nn                    import nn, which comes with minigrad
poisson               minigrad.tensor(rng.poisson(x.data))
polar                 r * np.cos(angle) and r * np.sin(angle)
randint_like          minigrad.randint(low, high, x.shape)
range                 minigrad.arange(start, stop + step, step)
row_stack             np.vstack(xs)
rsub                  y - x
save                  nn.save_weights(path, model), or np.save
scalar_tensor         minigrad.tensor(value)
seed                  minigrad.manual_seed(seed)
segment_reduce        np.add.reduceat(x, starts)
select_copy           x[index].clone()
set_default_dtype     dtype= where tensors are made, model.float() and model.double()
set_default_tensor_type  dtype= where tensors are made
slice_copy            x[start:stop].clone()
std_mean              x.std(axis, correction=1) and x.mean(axis)
special               scipy.special on tensors: erf, gammaln, expit and others have derivatives
testing               np.testing on x.data
trapz                 np.trapezoid(y, x)
unique_dim            np.unique(x, axis=...)
typename              type(x).__name__
utils                 nn.ArrayBatches(x, y, batch_size=...) for torch.utils.data.DataLoader of a TensorDataset
version               minigrad.__version__
vmap                  the batch axis: operations take leading axes; or np.stack([f(x) for x in xs])
wait                  nothing: operations are done when they return
is_tensor             isinstance(x, minigrad.Tensor)
from_dlpack           minigrad.from_numpy(np.from_dlpack(x))
to_dlpack             x.data.__dlpack__()
newaxis               None, or np.newaxis
pca_lowrank|svd_lowrank  minigrad.svd(x, full_matrices=False)
lu_unpack             scipy.linalg.lu(x.data), which has no gradient
frobenius_norm        minigrad.norm(x)
nuclear_norm          np.linalg.norm(x, "nuc")
while_loop            while
profiler              minigrad.profile()
signal                scipy.signal on x.data
distributions         scipy.stats on x.data; the log-density is a line of NumPy
set_anomaly_enabled|is_anomaly_check_nan_enabled|is_anomaly_enabled  minigrad.detect_anomaly()
cosine_similarity     nn.functional.cosine_similarity(x, y)
set_num_interop_threads|init_num_threads  minigrad.set_num_threads(n)
get_num_interop_threads   minigrad.get_num_threads()
jacfwd|jacrev         minigrad.jacobian(f)
numpy                 import numpy as np: its functions take tensors
scipy                 scipy itself, whose scipy.special has derivatives here
tree_map              the loop; minigrad.trees.leaves and rebuilt take trees apart
tree_util             minigrad.trees.leaves and rebuilt
lax                   Python's loops and conditions, and NumPy's functions
pmap                  minigrad.start_parallel(...), or the batch axis
make_vjp              minigrad.vjp(f, x)
make_jvp              minigrad.jvp(f, x, v)
make_hvp|hessian_vector_product  minigrad.hvp(f, x, v)
holomorphic_grad      real and imaginary parts; complex numbers have no gradients here
multigrad_dict        minigrad.grad(f): a dict of arrays is an argument
checkpoint            nothing: what no rule reads is not saved
random                np.random.default_rng(seed), or minigrad.manual_seed
""")

DATA = table("""
DataLoader            nn.ArrayBatches(x, y, batch_size=..., shuffle=True)
TensorDataset|StackDataset  nn.ArrayBatches(x, y, batch_size=...)
Dataset               a list or a generator of batches; nn.as_batches takes both
IterableDataset       a generator of batches; nn.as_batches takes it
random_split          x[order[:n]] and x[order[n:]] with order = np.random.default_rng(seed).permutation(len(x))
Subset                x[indices]
ConcatDataset         np.concatenate, or itertools.chain
ChainDataset          itertools.chain
Sampler               nn.ArrayBatches(x, batch_size=..., shuffle=True, seed=...)
BatchSampler          nn.ArrayBatches(x, batch_size=...)
RandomSampler         nn.ArrayBatches(x, batch_size=..., shuffle=True)
SequentialSampler     nn.ArrayBatches(x, batch_size=..., shuffle=False)
SubsetRandomSampler   nn.ArrayBatches(x[indices], batch_size=...)
WeightedRandomSampler x[rng.choice(len(x), n, p=weights / weights.sum())]
DistributedSampler|distributed  nothing: with nn.Trainer each rank reads its rows of a batch
default_collate       np.stack([...])
default_convert       minigrad.tensor(data)
get_worker_info       nothing: batches are made in the process itself
""")

NN = table("""
Bilinear              np.einsum("...i,oij,...j->...o", x, weight, y)
Buffer|UninitializedBuffer  model.register_buffer(name, array)
CELU                  nn.ELU(), which is the same for alpha 1
Container             nn.Module
CosineEmbeddingLoss   s = nn.functional.cosine_similarity(x, y); np.where(t == 1, 1 - s, np.maximum(0, s)).mean()
CosineSimilarity      nn.functional.cosine_similarity(x, y)
DataParallel|parallel minigrad.DataParallel
GLU                   x, gate = np.split(x, 2, axis=-1); x * gate.sigmoid()
GaussianNLLLoss       (np.log(var) + (x - target) ** 2 / var).mean() / 2
GroupNorm             nn.LayerNorm of x.reshape(n, groups, -1)
HingeEmbeddingLoss    np.where(y == 1, x, np.maximum(0, margin - x)).mean()
Hardshrink            minigrad.where(x.abs() > 0.5, x, 0.0)
Hardsigmoid           (x / 6 + 0.5).clip(0, 1)
Hardswish             x * (x / 6 + 0.5).clip(0, 1)
Hardtanh              x.clip(-1, 1)
LazyLinear            nn.Linear(in_features, out_features)
LinearCrossEntropyLoss|LinearCrossEntropyOptions  minigrad.linear_cross_entropy(x, weight, target)
MarginRankingLoss     np.maximum(0, margin - y * (x1 - x2)).mean()
Mish                  x * x.softplus().tanh()
MultiheadAttention    nn.MultiHeadAttention, whose masks say True for what is allowed
MultiLabelSoftMarginLoss   nn.BCEWithLogitsLoss()
MultiMarginLoss       np.maximum(0, margin - x[rows, y][:, None] + x), summed over the other classes
MultiLabelMarginLoss  np.maximum(0, 1 - (x[:, y] - x[:, others])), summed
NLLLoss2d             nn.NLLLoss()
PReLU                 minigrad.where(x > 0, x, weight * x)
PairwiseDistance      minigrad.norm(x - y + 1e-6, axis=-1)
ParameterDict|ParameterList  a Module with the parameters as attributes
PoissonNLLLoss        (np.exp(x) - target * x).mean()
RReLU                 nn.LeakyReLU()
ReLU6                 x.clip(0, 6)
SELU                  1.0507009873554805 * minigrad.elu(x, 1.6732632423543772)
SoftMarginLoss        minigrad.softplus(-y * x).mean()
Softmin               minigrad.softmax(-x)
Softshrink            x.sign() * (x.abs() - 0.5).clip(min=0)
Softsign              x / (1 + x.abs())
Tanhshrink            x - x.tanh()
Threshold             minigrad.where(x > threshold, x, value)
TransformerDecoder    nn.Decoder(...), or nn.ModuleList of nn.TransformerDecoderLayer
TransformerEncoder    nn.Encoder(...), or nn.ModuleList of nn.TransformerEncoderLayer
TripletMarginLoss     np.maximum(0, margin + minigrad.norm(a - p, axis=-1) - minigrad.norm(a - n, axis=-1)).mean()
TripletMarginWithDistanceLoss  np.maximum(0, margin + distance(a, p) - distance(a, n)).mean()
Unflatten             x.reshape(...)
SyncBatchNorm         nn.BatchNorm1d(n)
factory_kwargs        dtype=, which layers with parameters take
modules               nn itself
parameter             nn.Parameter
UninitializedParameter     nn.Parameter, whose shape is given
""")

FUNCTIONAL = table("""
batch_norm            nn.BatchNorm1d(n)(x)
celu                  minigrad.elu(x), which is the same for alpha 1
group_norm            minigrad.layer_norm of x.reshape(n, groups, -1)
gumbel_softmax        minigrad.softmax((x - np.log(-np.log(minigrad.rand(*x.shape)))) / tau)
multi_head_attention_forward   nn.MultiHeadAttention
multilabel_soft_margin_loss    nn.functional.binary_cross_entropy_with_logits(x, y)
pad                   np.pad(x, widths), whose widths begin with the first axis
pdist                 minigrad.norm(x[i] - x[j], axis=-1) with i, j = np.triu_indices(len(x), 1)
rrelu                 minigrad.leaky_relu(x, slope)
""")
FUNCTIONAL = {name.lower(): text for name, text in NN.items()} | FUNCTIONAL
"""Functions that have no entry of their own are found by the names of their layers, without
underscores.
"""

OPTIM = table("""
ASGD                  nn.MovingAverage beside minigrad.optim.SGD
LBFGS                 scipy.optimize.minimize(minigrad.value_and_grad(loss), w, jac=True, method="L-BFGS-B")
SparseAdam            minigrad.optim.Adam
swa_utils             nn.MovingAverage, or nn.average_weights
ChainedScheduler      step() of each schedule; their factors multiply
CyclicLR              LambdaLR with a function of the epoch
MultiplicativeLR      LambdaLR, whose factor is of the first learning rate
LRScheduler           Schedule
swap_in_optimizer_params_and_state  optimizer.load_state_dict(state)
""")

_INSIDE = """
AVG AliasDb Argument ArgumentSpec BenchmarkConfig BenchmarkExecutionStats Block BufferDict CallStack Capsule Code
CompilationUnit CompleteArgumentSpec DataChunk DeepCopyMemoTable DispatchKey DispatchKeySet EPOCH_DEPRECATION_WARNING
ErrorReport ExcludeDispatchKeyGuard ExecutionPlan FatalError FileCheck FunctionSchema Future Gradient Graph
GraphExecutorState IODescriptor JITException LockingLogger LoggerBase ModuleDict Node NoopLogger OperatorInfo
PRIVATE_OPS ParameterDict SUM StaticModule Tag ThroughputBenchmark TracingState USE_GLOBAL_DEPS
USE_RTLD_GLOBAL_WITH_LIBTORCH Use Value ao argument_validation assert_int_or_pair bit boolean_dispatch
choose_qparams_optimized classes classproperty common_types compiled_with_cxx11_abi compiler contrib cpp dataloader
dataset export functional futures fx grad graph graph_settings grouped_mm intrinsic is_inference_mode_enabled
is_warn_always_enabled jagged library masked merge_type_from_type_comment monitor nativert nested non_deterministic
overrides package prepare_multiprocessing_environment profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 qat quasirandom
reproducibility_notes return_types runtime_validation runtime_validation_disabled sampler scaled_grouped_mm scaled_mm
set_flush_denormal set_warn_always sspaddmm tf32_notes torch torch_version types unify_type_list version windows
"""

_KINDS = {
    "|".join(_INSIDE.split())
    + r"|(Script|LiteScript|ConcreteModule|PyTorchFile|Disable|Serialization|Deserialization|Sym|sym_|BroadcastingList|"
    r"has_|parse_|import_ir_|batch_norm_).*|native_\w*norm|\w*(Type|[dD]ata[pP]ipe\w*|torch_function\w*)": (
        "that is inside PyTorch, and has no counterpart"
    ),
    r"\w*(Storage|StorageBase)": "the memory of a tensor is that of the ndarray x.data",
    r".*(contiguous_format|preserve_format|channels_last|memory_format|channels_last_3d|strided)": (
        "memory lies as in NumPy's arrays: see x.strides"
    ),
    r".*determin.*|.*matmul_precision": "results are the same at every run: there is nothing to "
                                        "set",
    r"Ada\w+|Muon|[NR]Adam|RMSprop|Rprop|LARS": "there are SGD, Adam and AdamW",
    r"(cuda|accelerator|backends|cpu|xpu|mps|mtia|hip|Stream|Event|amp|autocast\w*|GradScaler|get_default_device|"
    r"set_default_device|\w*autocast\w*|\w*(cudnn|miopen|mkldnn|vulkan)\w*|AcceleratorError|OutOfMemoryError|numa|"
    r"is_vulkan_available|thread_safe_generator)": "everything is in the memory of the CPU, on "
                                                   "one device",
    r"(Lazy)?(Conv|Fold|Unfold$|Pixel|ChannelShuffle|Upsampl|.*(Pool|Unpool|Pad)\dd|CrossMapLRN2d|LocalResponse|"
    r"(Batch|Instance)Norm\dd|LazyBatchNorm|LazyInstanceNorm|Softmax2d|Dropout[23]d).*":
        "there are no layers of images; x.unfold and a product do what a convolution does",
    r".*(conv\dd|conv_|convolution|_pool\dd|unpool\dd|interpolate|upsample|grid_sample|affine_grid|pixel_|"
    r"channel_shuffle|GRID_SAMPLE|local_response|instance_norm|dropout[23]d|constant_pad).*|fold|conv_tbc":
        "there are no functions of images; x.unfold and a product do what a convolution does",
    r".*(RNN|LSTM|GRU|rnn_|lstm|gru).*": "there are no recurrent layers; write the loop over "
                                         "steps, or attention",
    r".*(alpha_dropout|AlphaDropout|feature_dropout|native_dropout).*|[dD]ropout1d":
        "there is one dropout, minigrad.dropout(x, p), of single elements",
    r".*(EmbeddingBag|embedding_bag|embedding_renorm).*": "write minigrad.embedding(weight, "
                                                          "indices).sum(axis=...)",
    r".*(CTC|ctc|AdaptiveLogSoftmax).*": "there is no such loss",
    r".*(quant|qint|quint|fbgemm|observer|QUInt|QInt|q_scale|q_zero|q_per|int_repr|per_tensor|per_channel).*|(hspmm|hsmm|dsmm|saddmm|spmm|smm)":
        "there are no quantised and no sparse tensors",
    r".*(sparse|Sparse|coalesce|ccol|crow|_indices_copy|values_copy|indices_copy).*": (
        "there are no sparse tensors; scipy.sparse works on x.data"
    ),
    r".*(complex|cfloat|cdouble|chalf|Complex|view_as_real).*|real|imag|conj\w*":
        "complex numbers have no gradients here; write real and imaginary parts",
    r"bfloat16|BFloat16\w*|float8\w*|float4\w*|int[1-7]|uint[1-7]|bits\w*|uint16|uint32|uint64|BFloat.*":
        "a dtype of NumPy stands in its place: np.float16, np.float32, np.float64, np.int8 to "
        "np.uint64",
}  # fmt: skip


def advice(module: str, name: str) -> str:
    """The sentence for a name that `module` has not; "" where nothing is known of it."""
    from .core.tensor import Tensor
    from .ops import advice as of_tensors

    tables = {
        "nn": (NN, DATA),
        "nn.functional": (FUNCTIONAL,),
        "minigrad.optim": (OPTIM,),
        "minigrad.optim.lr_scheduler": (OPTIM,),
    }.get(module, (TORCH, DATA, FUNCTIONAL))
    plain = name if name.endswith("_") else name.replace("_", "")
    text = next((known[key] for key in (name, plain) for known in tables if key in known), None)
    if text is not None:
        said = text.removeprefix("nothing: ")
        return said if said != text or text.startswith("there ") else f"write {text}"
    if module in ("minigrad", "nn.functional"):
        if name.endswith("_copy"):
            return f"write x.{name[:-5]}(...).clone()"
        if name.endswith("_") and (hasattr(Tensor, name[:-1]) or name[:-1] in FUNCTIONAL):
            return f"tensors are not changed in place; {advice(module, name[:-1]).replace('write ', 'write x = ')}"
        if hasattr(Tensor, name):
            return f"write x.{name}(...)"
        if found := of_tensors.advice(name):
            return found
    same = (
        f"write np.{name}(...)"
        if module == "minigrad" and callable(getattr(np, name, None))
        else ""
    )
    return next((text for pattern, text in _KINDS.items() if re.fullmatch(pattern, name)), same)


def missing(module: str, name: str) -> NoReturn:
    """What a module answers for a name that it has not."""
    found = "" if name.startswith("__") else advice(module, name)
    text = f"module {module!r} has no attribute {name!r}"
    raise AttributeError(f"{text}: {found}" if found else text, name=name)
