use std::time::Duration;

use weft_call::{Op, Tiling};
use weft_kernels::DType;
use weft_schedule::Collective;

use super::*;

fn shape(grid: Grid, receive: Vec<u32>) -> Schedule {
    Schedule {
        collective: Collective::AllReduce,
        ranks: 4,
        rank: 0,
        grid,
        scratch: vec![4],
        receive,
        steps: vec![],
    }
}

fn call(elements: u64) -> Call {
    Call {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: Op::Sum,
        input: std::ptr::null(),
        output: std::ptr::null_mut(),
        counts: Counts::Equal(elements),
        priority: 0,
        timeout: None,
        algorithm: None,
        tiling: Tiling::default(),
        wire: None,
    }
}

#[test]
fn tiles_cover_every_chunk_once() {
    for elements in [0, 1, 3, 7, 1000, 1_000_003, 50_000_017] {
        let shape = shape(Grid::Equal(4), vec![1, 1]);
        let layout = ChannelLayout::new(4, Duration::ZERO);
        let geometry = Geometry::tiled(
            &call(elements),
            &shape,
            layout,
            None,
            None,
            Encoding::Native,
        )
        .unwrap();
        let mut next = 0;
        for chunk in 0..4 {
            for tile in 0..geometry.tiles {
                let (start, end) = geometry.chunk(&shape, chunk, tile);
                assert_eq!(start, next);
                assert!(end - start <= elements.div_ceil(4).div_ceil(geometry.tiles));
                next = end;
            }
        }
        assert_eq!(next, elements);
        let largest = elements.div_ceil(4).div_ceil(geometry.tiles);
        let receive = &geometry.tiled.as_ref().unwrap().receive;
        assert!(receive[1] >= largest * 4);
        assert!(receive[1] + largest * 4 <= layout.limits.receive_bytes);
    }
}

#[test]
fn blocks_are_not_divided() {
    let scaled = |chunks: Range<u32>| Operand {
        location: Location::Scratch { rank: 0, entry: 0 },
        chunks,
        origin: 0,
        encoding: Encoding::E4m3,
    };
    for elements in [0, 1, 127, 129, 5000, 1_000_003] {
        let shape = shape(Grid::Equal(4), vec![1]);
        let layout = ChannelLayout::new(4, Duration::ZERO);
        let call = call(elements);
        let geometry =
            Geometry::tiled(&call, &shape, layout, None, Some(4096), Encoding::E4m3).unwrap();
        let mut next = 0;
        for chunk in 0..4 {
            for tile in 0..geometry.tiles {
                let (start, end) = geometry.chunk(&shape, chunk, tile);
                assert!(start.is_multiple_of(128) || start == elements);
                assert_eq!(start, next);
                assert!(end - start <= geometry.tile_bytes() / 4);
                next = end;
            }
        }
        assert_eq!(next, elements);
        let last = scaled(3..4);
        let lengths = (0..3).map(|chunk| {
            let (start, end) = geometry.chunk(&shape, chunk, 0);
            Encoding::E4m3.bytes(end - start, 4)
        });
        assert_eq!(geometry.offset(&shape, &last, 0, 0), lengths.sum::<u64>());
    }
}

#[test]
fn chunk_layout_does_not_depend_on_their_number() {
    for chunks in [3, 16, 17, 40] {
        let grid = Grid::Equal(chunks);
        let shape = shape(grid.clone(), vec![]);
        let layout = ChannelLayout::new(4, Duration::ZERO);
        let geometry =
            Geometry::tiled(&call(1003), &shape, layout, None, None, Encoding::Native).unwrap();
        for chunk in 0..=chunks {
            let at = geometry.start(&shape, chunk);
            assert_eq!(
                at,
                grid_start(&grid, 1003, chunk),
                "chunk {chunk} of {chunks}"
            );
        }
    }
}
