"""The fake CUDA driver itself, without a framework: what a program sees of memory, streams, recordings and counts.

These tests need g++ and CUDA's headers, which lie in the site-packages of the CUDA build (triton). Each one drives the
library by ctypes in a process of its own, because a process has one set of cards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

from double import build  # noqa: E402

Drive = Callable[..., str]


def _headers() -> Path | None:
    """Return CUDA's headers: of GPU_DRY_PYTHON's environment, or of this interpreter's."""
    interpreters = [Path(os.environ.get("GPU_DRY_PYTHON", sys.executable)), Path(sys.executable)]
    sites = [site for python in interpreters for site in python.parent.parent.glob("lib/python3*/site-packages")]
    return next((found for site in sites if (found := build.headers(site))), None)


HEADERS = _headers()
pytestmark = pytest.mark.skipif(
    HEADERS is None or shutil.which("g++") is None, reason="no g++, or no headers of CUDA: set GPU_DRY_PYTHON"
)

OPENING = """
import ctypes, sys, threading
from collections import Counter
c = ctypes.CDLL(sys.argv[1])
c.null_cuda_used.restype = ctypes.c_size_t
size, pointer = ctypes.c_size_t, ctypes.c_void_p
MIB = 1 << 20
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
OOM, CAPTURE, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = (
    2, 900, 901, 902, 903, 904, 905, 906, 907, 908)
def made(function, *words):
    value = pointer()
    assert function(ctypes.byref(value), *words) == 0, (function, words)
    return value
def malloc(count): return made(c.cudaMalloc, size(count))
def pinned(count): return made(c.cudaHostAlloc, size(count), 0)
def stream(flags=1): return made(c.cudaStreamCreateWithFlags, flags)
def event(): return made(c.cudaEventCreate)
def begin(on, mode=GLOBAL): assert c.cudaStreamBeginCapture(on, mode) == 0
def end(on):
    graph = pointer()
    return c.cudaStreamEndCapture(on, ctypes.byref(graph)), graph
def status(on):
    value = ctypes.c_int(-1)
    return c.cudaStreamIsCapturing(on, ctypes.byref(value)) or value.value
def copy(to, source, count, on): return c.cudaMemcpyAsync(to, source, size(count), 4, on)
def fill(to, value, count, on=None): return c.cudaMemsetAsync(to, value, size(count), on)
def content(address, count): return ctypes.string_at(address.value, count)
def begin_trace(): assert c.null_cuda_trace(sys.argv[2].encode()) == 0
def counts(columns=2):
    return Counter(tuple(line.rstrip("\\n").split("\\t")[:columns]) for line in open(sys.argv[2]))
begin_trace()
def kernel(name, grid=(1, 1, 1), block=(32, 1, 1), shared=0, on=None, arguments=None):
    module, function = made(c.cuModuleLoadData, b""), pointer()
    assert c.cuModuleGetFunction(ctypes.byref(function), module, name) == 0
    return c.cuLaunchKernel(function, *grid, *block, shared, on, arguments, None)
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.library(HEADERS, tmp_path_factory.mktemp("double"))


@pytest.fixture
def drive(library: Path, tmp_path: Path) -> Drive:
    """Run a program on the fake driver, after OPENING. The variables choose its cards."""

    def run(program: str, **variables: object) -> str:
        text = OPENING + dedent(program)
        done = subprocess.run(
            [sys.executable, "-c", text, str(library), str(tmp_path / "counts")],
            env=os.environ | {name: str(value) for name, value in variables.items()},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_library_is_compiled_once_and_exports_no_name_of_the_language(library: Path) -> None:
    before = library.stat().st_mtime_ns
    assert build.library(HEADERS, library.parents[1]) == library and library.stat().st_mtime_ns == before
    assert (library.parent / "libcuda.so").resolve() == library
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert "cudaMalloc" in names and not [name for name in names if name.startswith("_Z")]


@pytest.mark.parametrize(
    ("capability", "name", "processors", "shared"),
    [
        ("7.0", "Tesla V100-SXM2-32GB", 80, 98304),
        ("7.5", "Tesla T4", 40, 65536),
        ("8.0", "NVIDIA A100-SXM4-80GB", 108, 166912),
        ("9.0", "NVIDIA H100 80GB HBM3", 132, 232448),
        ("10.0", "NVIDIA B200", 148, 232448),
    ],
)
def test_a_card_by_its_capability(drive: Drive, capability: str, name: str, processors: int, shared: int) -> None:
    major, _, minor = capability.partition(".")
    program = """
        text, value = ctypes.create_string_buffer(99), ctypes.c_int()
        c.cuDeviceGetName(text, 99, 0)
        print(text.value.decode(), end="|")
        for number in (75, 76, 16, 97):
            assert c.cudaDeviceGetAttribute(ctypes.byref(value), number, 0) == 0
            print(value.value, end="|")
    """
    assert drive(program, NULL_CUDA_MAJOR=major, NULL_CUDA_MINOR=minor) == (
        f"{name}|{major}|{minor}|{processors}|{shared}|"
    )


def test_memory_has_an_end_on_each_card_and_comes_back(drive: Drive) -> None:
    drive(
        """
        first = malloc(60 * MIB)
        assert c.cudaMalloc(ctypes.byref(pointer()), size(41 * MIB)) == OOM
        assert c.cudaGetLastError() == OOM and c.cudaGetLastError() == 0
        c.cudaSetDevice(1)
        other = malloc(90 * MIB)
        assert (c.null_cuda_used(0), c.null_cuda_used(1)) == (60 * MIB, 90 * MIB)
        assert c.cudaFree(first) == 0 and c.cudaFree(first) == 1
        assert (c.null_cuda_used(0), c.null_cuda_used(1)) == (0, 90 * MIB)
        assert counts(3)["runtime", "cudaMalloc", str(90 * MIB)] == 1
        """,
        NULL_CUDA_MIB=100,
        NULL_CUDA_DEVICES=2,
    )


def test_virtual_memory_takes_a_card_s_memory_when_it_is_created(drive: Drive) -> None:
    drive(
        """
        class Properties(ctypes.Structure):  # CUmemAllocationProp: pinned memory of card 0
            _fields_ = [(name, ctypes.c_int) for name in ("type", "handles", "place", "device")] + [("rest", size * 2)]
        wanted, start, handle = Properties(1, 0, 1, 0), ctypes.c_uint64(), ctypes.c_uint64()
        assert c.cuMemAddressReserve(ctypes.byref(start), size(800 * MIB), size(0), ctypes.c_uint64(0), 0) == 0
        assert c.null_cuda_used(0) == 0
        handles = []
        while not c.cuMemCreate(ctypes.byref(handle), size(20 * MIB), ctypes.byref(wanted), 0):
            handles.append(ctypes.c_uint64(handle.value))
        assert len(handles) == 5 and c.null_cuda_used(0) == 100 * MIB
        access = (ctypes.c_int * 3)(1, 0, 3)
        assert c.cuMemMap(start, size(20 * MIB), size(0), handles[0], 0) == 0
        assert c.cuMemSetAccess(start, size(20 * MIB), access, size(1)) == 0
        assert fill(pointer(start.value), 7, 100) == 0 and content(start, 100) == bytes([7]) * 100
        assert c.cuMemRelease(handles[0]) == 0
        assert c.null_cuda_used(0) == 100 * MIB  # it is still mapped
        assert c.cuMemUnmap(start, size(20 * MIB)) == 0
        assert c.null_cuda_used(0) == 80 * MIB
        """,
        NULL_CUDA_MIB=100,
    )


def test_copies_are_told_by_their_direction_and_their_memory_on_the_host(drive: Drive) -> None:
    drive("""
        card, other, page_locked, plain = malloc(4096), malloc(4096), pinned(4096), ctypes.create_string_buffer(4096)
        plain[:5] = b"hello"
        for to, source in ((card, plain), (card, page_locked), (page_locked, card), (other, card)):
            copy(to, source, 1000, None)
        copy(card, plain, 5, None)
        back = ctypes.create_string_buffer(4096)
        assert c.cudaMemcpy(back, card, size(5), 2) == 0 and back.value == b"hello"
        found = counts(3)
        assert found["copy", "cudaMemcpyAsync HtoD pageable", "1000"] == 1
        assert found["copy", "cudaMemcpyAsync HtoD pageable", "5"] == 1
        assert found["copy", "cudaMemcpyAsync HtoD pinned", "1000"] == 1
        assert found["copy", "cudaMemcpyAsync DtoH pinned", "1000"] == 1
        assert found["copy", "cudaMemcpyAsync DtoD", "1000"] == 1
        assert found["copy", "cudaMemcpy DtoH pageable", "5"] == 1
    """)


def test_a_launch_that_no_card_takes_is_an_error_that_stays_until_it_is_asked_for(drive: Drive) -> None:
    drive("""
        assert kernel(b"fine") == 0
        assert kernel(b"wide", block=(1025, 1, 1)) == 9 and c.cudaPeekAtLastError() == 9 and c.cudaGetLastError() == 9
        assert kernel(b"empty", grid=(0, 1, 1)) == 9
        assert kernel(b"greedy", shared=50_000) == 1  # more than 48 KiB, which the function was not allowed
        function = pointer()
        c.cuModuleGetFunction(ctypes.byref(function), made(c.cuModuleLoadData, b""), b"allowed")
        assert c.cuFuncSetAttribute(function, 8, 60_000) == 0
        assert c.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 60_000, None, None, None) == 0
        assert c.cuFuncSetAttribute(function, 8, 65_537) == 1
        assert counts()["triton", "fine"] == 1 and counts()["bad", "greedy"] == 1
    """, NULL_CUDA_MAJOR=7, NULL_CUDA_MINOR=5)  # fmt: skip


def test_a_recording_does_nothing_until_its_launches_do_all_of_it_each_time(drive: Drive) -> None:
    drive("""
        on, card, to = stream(), malloc(100), pinned(100)
        ctypes.memset(to.value, 0, 100)
        called = []
        host = ctypes.CFUNCTYPE(None, pointer)(lambda _: called.append(1))
        begin_trace()
        begin(on)
        assert status(on) == 1 and status(stream()) == 0
        fill(card, 5, 100, on); kernel(b"one", on=on); copy(to, card, 100, on); c.cudaLaunchHostFunc(on, host, None)
        error, graph = end(on)
        assert error == 0 and status(on) == 0 and not called and content(to, 100) == bytes(100)
        before = counts()
        assert ("triton", "one") not in before and before["captured", "triton"] == 1
        count = size()
        c.cudaGraphGetNodes(graph, None, ctypes.byref(count))
        nodes, kind, after = (pointer * count.value)(), ctypes.c_int(), size()
        c.cudaGraphGetNodes(graph, nodes, ctypes.byref(count))
        kinds = []
        for node in nodes:
            c.cudaGraphNodeGetType(pointer(node), ctypes.byref(kind))
            kinds.append(kind.value)
        assert kinds == [2, 0, 1, 3]  # memset, kernel, copy, host
        c.cudaGraphNodeGetDependencies(pointer(nodes[3]), None, None, ctypes.byref(after))
        assert after.value == 1
        ready = made(c.cudaGraphInstantiateWithFlags, graph, ctypes.c_ulonglong(0))
        c.cudaGraphDestroy(graph)
        begin_trace()
        for _ in range(3):
            assert c.cudaGraphLaunch(ready, on) == 0
        found = counts()
        assert found["graph", "launch"] == found["triton", "one"] == found["replayed", "triton"] == 3
        assert found["copy", "cudaMemcpyAsync DtoH pinned"] == found["memset", "cudaMemsetAsync"] == 3
        assert len(called) == 3 and content(to, 100) == bytes([5]) * 100
    """)


def test_a_stream_joins_a_recording_by_an_event_and_must_come_back(drive: Drive) -> None:
    drive("""
        first, second, forked, joined = stream(), stream(), event(), event()
        def fork():
            begin(first)
            assert c.cudaEventRecord(forked, first) == 0 and status(second) == 0
            assert c.cudaStreamWaitEvent(second, forked, 0) == 0 and status(second) == 1
            kernel(b"beside", on=second)
        fork()
        c.cudaEventRecord(joined, second); c.cudaStreamWaitEvent(first, joined, 0)
        error, graph = end(first)
        assert error == 0 and graph.value and status(second) == 0
        fork()
        error, graph = end(first)
        assert error == UNJOINED and not graph.value and status(first) == status(second) == 0
        fork()
        assert end(second)[0] == UNMATCHED and end(first)[0] == INVALIDATED
        other = event()
        c.cudaEventRecord(other, second)
        begin(first)
        assert c.cudaStreamWaitEvent(first, other, 0) == ISOLATION and end(first)[0] == INVALIDATED
        begin(first); begin(second)
        c.cudaEventRecord(forked, first)
        assert c.cudaStreamWaitEvent(second, forked, 0) == MERGE
        assert end(first)[0] == end(second)[0] == INVALIDATED
    """)


def test_what_is_forbidden_while_a_stream_is_recorded_breaks_the_recording(drive: Drive) -> None:
    drive("""
        on, card, place, plain = stream(), malloc(100), pointer(), ctypes.create_string_buffer(100)
        recorded, earlier = event(), event()
        c.cudaEventRecord(earlier, on)
        forbidden = {
            "malloc": lambda: c.cudaMalloc(ctypes.byref(place), size(100)),
            "free": lambda: c.cudaFree(card),
            "pinned": lambda: c.cudaHostAlloc(ctypes.byref(place), size(100), 0),
            "device": lambda: c.cudaDeviceSynchronize(),
            "stream": lambda: c.cudaStreamSynchronize(on),
            "another stream": lambda: c.cudaStreamSynchronize(stream()),
            "query": lambda: c.cudaStreamQuery(on),
            "event": lambda: c.cudaEventQuery(earlier),
            "wait for event": lambda: c.cudaEventSynchronize(earlier),
            "pageable": lambda: copy(card, plain, 100, on),
            "blocking copy": lambda: c.cudaMemcpy(plain, card, size(100), 2),
        }
        for name, call in forbidden.items():
            begin(on)
            assert call() == CAPTURE, name
            assert status(on) == 2 and kernel(b"after", on=on) == INVALIDATED, name
            error, graph = end(on)
            assert error == INVALIDATED and not graph.value and status(on) == 0, name
        begin(on)
        c.cudaEventRecord(recorded, on)
        assert c.cudaEventQuery(recorded) == CAPTURED_EVENT and end(on)[0] == INVALIDATED
        begin(on)
        assert c.cudaStreamBeginCapture(on, GLOBAL) == 401 and end(on)[0] == 0
        assert c.cudaStreamBeginCapture(None, GLOBAL) == CAPTURE and end(on)[0] == 401
    """)


def test_the_default_stream_disturbs_only_recordings_that_wait_for_it(drive: Drive) -> None:
    drive("""
        blocking, free, card = stream(0), stream(1), malloc(100)
        begin(free)
        assert fill(card, 1, 100, None) == 0 and status(None) == 0 and end(free)[0] == 0
        begin(blocking)
        assert fill(card, 1, 100, None) == IMPLICIT and end(blocking)[0] == INVALIDATED
    """)


def test_the_mode_says_which_threads_may_do_what_is_unsafe(drive: Drive) -> None:
    drive("""
        on = stream()
        def unsafe(): return c.cudaMalloc(ctypes.byref(pointer()), size(100))
        def elsewhere(call):
            told = []
            thread = threading.Thread(target=lambda: told.append(call()))
            thread.start(); thread.join()
            return told[0]
        def exchanged(mode):
            value = ctypes.c_int(mode)
            c.cudaThreadExchangeStreamCaptureMode(ctypes.byref(value))
            return value.value
        def relaxed():
            assert exchanged(RELAXED) == GLOBAL
            told = unsafe()
            assert exchanged(GLOBAL) == RELAXED
            return told
        for mode, here, there in ((GLOBAL, CAPTURE, CAPTURE), (THREAD_LOCAL, CAPTURE, 0), (RELAXED, 0, 0)):
            for call, expected in ((unsafe, here), (lambda: elsewhere(unsafe), there)):
                begin(on, mode)
                assert call() == expected, mode
                assert end(on)[0] == (INVALIDATED if expected else 0), mode
        begin(on)
        assert relaxed() == elsewhere(relaxed) == 0 and elsewhere(lambda: kernel(b"theirs", on=on)) == 0
        assert elsewhere(lambda: end(on)[0]) == WRONG_THREAD and end(on)[0] == 0
        begin(on, RELAXED)
        assert elsewhere(lambda: end(on)[0]) == 0
    """)


def test_threads_write_one_trace(drive: Drive) -> None:
    drive("""
        def work():
            on, card = stream(), malloc(1000)
            for _ in range(200):
                assert kernel(b"busy", on=on) == 0 and fill(card, 1, 10, on) == 0
            assert c.cudaFree(card) == 0
        threads = [threading.Thread(target=work) for _ in range(8)]
        [thread.start() for thread in threads]; [thread.join() for thread in threads]
        found = counts(3)
        assert found["triton", "busy", "0"] == found["memset", "cudaMemsetAsync", "10"] == 1600
        assert c.null_cuda_used(0) == 0
    """)


def test_products_and_collectives_have_shapes_types_and_bytes(drive: Drive) -> None:
    drive("""
        on, blas = stream(), made(c.cublasCreate_v2)
        c.cublasSetStream_v2(blas, on)
        c.cublasGemmEx(blas, 1, 0, 128, 64, 32, None, None, 14, 0, None, 14, 0, None, None, 0, 0, 68, 99)
        class Id(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 128)]
        group = made(c.ncclCommInitRank, 8, Id(), 3)
        card = malloc(8000)
        fill(card, 9, 8000)
        assert c.ncclAllReduce(card, card, size(1000), 9, 0, group, on) == 0
        assert c.ncclAllGather(card, card, size(100), 7, group, on) == 0
        assert c.ncclReduceScatter(card, card, size(100), 7, 0, group, on) == 0
        begin(on)
        assert c.ncclAllReduce(card, card, size(10), 7, 0, group, on) == 0
        assert end(on)[0] == 0 and counts()["nccl", "ncclAllReduce"] == counts()["captured", "nccl"] == 1
        found = counts(4)
        assert found["cublas", "cublasGemmEx", "0", "TN 128 x 64 x 32 bf16 bf16 -> fp32"] == 1
        assert found["nccl", "ncclAllReduce", "2000", "1000 bf16 in a world of 8"] == 1
        assert found["nccl", "ncclAllGather", "400", "100 fp32 in a world of 8"] == 1
        assert found["nccl", "ncclReduceScatter", "3200", "800 fp32 in a world of 8"] == 1
    """)


def test_the_loss_scale_is_filled_and_grows_or_falls(drive: Drive) -> None:
    """A program reads its loss scale. So the kernels that fill and update it are carried out, also in a graph."""
    drive("""
        FILL = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
        UPDATE = b"_ZN2at6native28amp_update_scale_cuda_kernelEPfPiPKfddi"
        on, scale, tracker, found = stream(), malloc(4), malloc(4), malloc(4)
        def words(*values):
            made = (pointer * len(values))(*[ctypes.addressof(value) for value in values])
            made.values = values  # they live as long as the array
            return made
        def filled(where, value):
            assert kernel(FILL, on=on, arguments=words(ctypes.c_int(1), ctypes.c_float(value), where)) == 0
        def update():
            double, number = ctypes.c_double, ctypes.c_int
            values = scale, tracker, found, double(2), double(0.5), number(2)
            assert kernel(UPDATE, on=on, arguments=words(*values)) == 0
        def now(): return ctypes.c_float.from_address(scale.value).value
        filled(scale, 65536); filled(found, 0); fill(tracker, 0, 4)
        update(); assert now() == 65536
        update(); assert now() == 131072
        filled(found, 1); update(); assert now() == 65536
        filled(found, 0)
        begin(on); update(); error, graph = end(on)
        assert now() == 65536
        ready = made(c.cudaGraphInstantiateWithFlags, graph, ctypes.c_ulonglong(0))
        c.cudaGraphLaunch(ready, on); c.cudaGraphLaunch(ready, on)
        assert now() == 131072
    """)


def test_an_unknown_function_is_not_found_and_is_written_down(drive: Drive) -> None:
    drive("""
        function, result = pointer(), ctypes.c_int()
        assert c.cuGetProcAddress_v2(b"cuMemAlloc", ctypes.byref(function), 13000, 0, ctypes.byref(result)) == 0
        assert function.value == ctypes.cast(c.cuMemAlloc_v2, pointer).value
        assert c.cuGetProcAddress_v2(b"cuNotThere", ctypes.byref(function), 13000, 0, ctypes.byref(result)) == 500
        assert function.value is None and counts()["unknown", "cuNotThere"] == 1
    """)


def test_a_matrix_tells_what_it_was_told(drive: Drive) -> None:
    drive("""
        layout, rows, batch = pointer(), ctypes.c_uint64(), ctypes.c_int32(4)
        c.cublasLtMatrixLayoutCreate(ctypes.byref(layout), 0, ctypes.c_uint64(12), ctypes.c_uint64(5), size(12))
        assert c.cublasLtMatrixLayoutGetAttribute(layout, 2, ctypes.byref(rows), size(8), None) == 0
        assert rows.value == 12
        assert c.cublasLtMatrixLayoutSetAttribute(layout, 5, ctypes.byref(batch), size(4)) == 0
        batch.value = 0
        assert c.cublasLtMatrixLayoutGetAttribute(layout, 5, ctypes.byref(batch), size(4), None) == 0
        assert batch.value == 4
        assert c.cublasLtMatrixLayoutGetAttribute(layout, 9, ctypes.byref(rows), size(8), None) == 7
    """)


def test_a_trace_has_every_call_in_its_order(drive: Drive, tmp_path: Path) -> None:
    drive("""
        card = malloc(512); kernel(b"first"); kernel(b"second", grid=(2, 1, 1))
        c.null_cuda_trace(None); kernel(b"third")
    """)
    lines = [line.split("\t") for line in (tmp_path / "counts").read_text().splitlines()]
    assert [line[:3] for line in lines if line[0] != "module"] == [
        ["runtime", "cudaMalloc", "512"], ["triton", "first", "0"], ["triton", "second", "0"],
    ]  # fmt: skip
    assert lines[-1][3] == "grid 2,1,1 block 32,1,1 shared 0"
