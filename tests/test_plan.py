"""The planner: a pure function. Pieces cover the range once, in order, each legal for its path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfile_arrays import DirectPathUnavailable
from hipfile_arrays._transfer import plan
from hipfile_arrays._transfer.fileinfo import FileInfo
from hipfile_arrays._transfer.values import Extent, FileRange, Platform, Route
from hipfile_arrays.config import Settings

MIB = 1 << 20
WISHES = ["auto", "direct", "staged", "library"]


def info(alignment: tuple[int, int] | None = (512, 512), size: int = 1 << 40) -> FileInfo:
    return FileInfo(size, True, False, "ext4", frozenset(), alignment)


alignments = st.one_of(
    st.none(), st.tuples(st.sampled_from([1, 4, 512, 4096]), st.sampled_from([512, 4096]))
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[plan.Facts, FileRange, Extent, Settings]:
    offset = draw(st.one_of(st.integers(0, 10_000), st.integers(0, 1 << 38)))
    nbytes = draw(st.one_of(st.integers(0, 10_000), st.integers(0, 1 << 34)))
    pointer = draw(st.integers(1, 1 << 46))
    if draw(st.booleans()):
        pointer = pointer // 4096 * 4096 + 4096
    facts = plan.Facts(
        reads=draw(st.booleans()),
        info=info(draw(alignments)),
        obstacles=draw(st.sampled_from([(), ("it rains",), ("it rains", "it pours")])),
        resident=draw(st.one_of(st.none(), st.integers(0, nbytes))),
        maps_page_cache=draw(st.booleans()),
    )
    settings = Settings(
        threads=draw(st.integers(1, 64)),
        chunk_bytes=draw(st.sampled_from([MIB // 4, MIB, 4 * MIB])),
        pinned_limit_bytes=draw(st.sampled_from([8 * MIB, 64 * MIB, 512 * MIB])),
    )
    return facts, FileRange(offset, nbytes), Extent(pointer, nbytes, Platform.HIP, 0), settings


@pytest.mark.parametrize("wish", WISHES)
@given(cases())
def test_pieces_cover_the_range_once_in_order_each_legal(wish, case) -> None:  # type: ignore[no-untyped-def]
    facts, file_range, extent, settings = case
    try:
        made = plan.make(facts, file_range, extent, settings, wish)
    except DirectPathUnavailable as error:
        told = str(error)
        assert wish == "direct"
        assert all(obstacle in told for obstacle in facts.obstacles)
        return
    at = file_range.offset
    for piece in made.pieces:
        assert piece.offset == at
        assert piece.pointer - extent.pointer == piece.offset - file_range.offset
        at += piece.nbytes
        if piece.route is Route.DIRECT:
            assert not facts.obstacles
            assert facts.info.direct_alignment is not None
            memory, offsets = facts.info.direct_alignment
            assert piece.offset % offsets == piece.nbytes % offsets == piece.pointer % memory == 0
        if piece.route is Route.LIBRARY:
            assert wish == "library"
        if piece.route is Route.MAPPED:
            assert facts.reads
            assert facts.maps_page_cache
        if piece.route is Route.O_DIRECT:
            assert facts.reads
            assert facts.info.direct_alignment is not None
    assert at == file_range.end
    assert 2 * made.chunk * made.threads <= settings.pinned_limit_bytes or made.threads == 1
    assert made.chunk % 4096 == 0
    assert made.chunk <= settings.chunk_bytes
    assert made.may_fall_back == (wish == "auto")
    assert made.choice.because
    if wish == "direct":
        assert any(piece.route is Route.DIRECT for piece in made.pieces) or not file_range.nbytes


@given(cases())
def test_same_arguments_same_plan(case) -> None:  # type: ignore[no-untyped-def]
    facts, file_range, extent, settings = case
    assert plan.make(facts, file_range, extent, settings, "auto") == plan.make(
        facts, file_range, extent, settings, "auto"
    )


def make(
    nbytes: int, wish: str = "auto", offset: int = 0, pointer: int = MIB, threads: int = 4, **facts
) -> plan.Plan:  # type: ignore[no-untyped-def]
    values = {"reads": True, "info": info(), "obstacles": (), "resident": 0, **facts}
    return plan.make(
        plan.Facts(**values),
        FileRange(offset, nbytes),
        Extent(pointer, nbytes, Platform.HIP, 0),
        Settings(threads=threads),
        wish,  # type: ignore[arg-type]
    )


def routes(made: plan.Plan) -> list[tuple[str, int]]:
    return [(piece.route.name, piece.nbytes) for piece in made.pieces]


def test_small_is_staged() -> None:
    assert routes(make(64 * 1024)) == [("BUFFERED", 64 * 1024)]


def test_cold_and_aligned_is_direct() -> None:
    assert routes(make(MIB)) == [("DIRECT", MIB)]


def test_unaligned_ends_are_staged() -> None:
    made = make(MIB, offset=100, pointer=MIB + 100)
    assert routes(made) == [("BUFFERED", 412), ("DIRECT", MIB - 512), ("BUFFERED", 100)]


def test_offset_and_address_that_never_align_together_are_staged() -> None:
    made = make(MIB, offset=100, pointer=MIB)
    assert routes(made) == [("O_DIRECT", MIB)]
    assert "do not come to alignment together" in made.choice.because


def test_cached_is_staged_through_the_page_cache() -> None:
    assert routes(make(MIB, resident=MIB)) == [("BUFFERED", MIB)]
    many = 64 * MIB
    assert routes(make(many, resident=many, maps_page_cache=True)) == [("BUFFERED", many)]
    assert routes(make(many, threads=2, resident=many, maps_page_cache=True)) == [("MAPPED", many)]


def test_obstacles_are_told_by_the_choice_and_by_the_error() -> None:
    made = make(MIB, obstacles=("it rains",))
    assert made.choice.path == "staged"
    assert "it rains" in made.choice.because
    with pytest.raises(DirectPathUnavailable, match="it rains"):
        make(MIB, "direct", obstacles=("it rains",))


def test_unknown_wish() -> None:
    with pytest.raises(ValueError, match="path must be one of"):
        make(MIB, "quick")
