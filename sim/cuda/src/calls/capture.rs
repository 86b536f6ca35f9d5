//! The calls on stream capture.

use gpushare_abi::errors::{
    CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUerror, CUresult,
};
use gpushare_abi::types::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_ACTIVE,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_NONE, CUgraph, CUgraphEdgeData,
    CUgraphNode, CUstream,
};

use crate::c::{In, Out};
use crate::capture::sequences::{Active, Ended, Target};
use crate::driver::driver;
use crate::faces::{DefaultStream, faces};
use crate::graph::{self, Graph};
use crate::{capture, context, submit};

fn begin_new(default: DefaultStream, stream: CUstream, mode: u32) -> CUresult {
    let stream = context::stream(default, stream)?;
    let graph = Graph::create();
    let target = Target {
        graph: graph.handle,
        own: true,
    };
    capture::begin(&stream, mode, target, Vec::new()).inspect_err(|_| graph.forget())
}

fn end(default: DefaultStream, stream: CUstream, out: Out<CUgraph>) -> CUresult {
    let stream = context::stream(default, stream)?;
    out.check()?;
    let ended = capture::end(&stream);
    out.set(std::ptr::null_mut())?;
    match ended {
        Ok(target) => out.set(target.graph as CUgraph),
        Err(Ended::Broken(target, error)) => {
            submit::discard(target);
            Err(error)
        }
        Err(Ended::Still(error)) => Err(error),
    }
}

/// Returns a stream's capture status, and the rest if it is active.
fn status(default: DefaultStream, stream: CUstream) -> Result<(u32, Option<Active>), CUerror> {
    let stream = context::stream(default, stream)?;
    match capture::active(&stream) {
        Ok(None) => Ok((CU_STREAM_CAPTURE_STATUS_NONE, None)),
        Ok(Some(active)) => Ok((CU_STREAM_CAPTURE_STATUS_ACTIVE, Some(active))),
        Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) => {
            Ok((CU_STREAM_CAPTURE_STATUS_INVALIDATED, None))
        }
        Err(other) => Err(other),
    }
}

/// The places for the results of `cuStreamGetCaptureInfo`; all except the status may be NULL.
struct Info {
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<CUgraph>,
    tails: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
}

/// The tails that the last `cuStreamGetCaptureInfo` returned to a thread; valid until its next call.
#[derive(Default)]
struct Told {
    tails: Vec<u64>,
    edges: Vec<[u64; 1]>,
}

thread_local! {
    static TOLD: std::cell::RefCell<Told> = std::cell::RefCell::default();
}

fn info(default: DefaultStream, stream: CUstream, info: Info) -> CUresult {
    info.status.check()?;
    let (status, active) = status(default, stream)?;
    info.status.set(status)?;
    let Some(active) = active else {
        return Ok(());
    };
    info.id.set_if_wanted(active.sequence);
    info.graph.set_if_wanted(active.graph as CUgraph);
    info.count.set_if_wanted(active.tails.len());
    TOLD.with_borrow_mut(|told| {
        told.edges = vec![[0]; active.tails.len()];
        told.tails = active.tails;
        info.tails.set_if_wanted(told.tails.as_ptr().cast());
        info.edges.set_if_wanted(told.edges.as_ptr().cast());
    });
    Ok(())
}

fn redirect(
    default: DefaultStream,
    stream: CUstream,
    nodes: In<CUgraphNode>,
    count: usize,
    flags: u32,
) -> CUresult {
    const SET: u32 = 1;
    let stream = context::stream(default, stream)?;
    let given = graph::names(nodes, count)?;
    capture::redirect(&stream, |active| {
        let active = active.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if flags > SET || given.iter().any(|id| !graph::is_in(*id, active.graph)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut tails = if flags == SET {
            Vec::new()
        } else {
            active.tails
        };
        for node in given {
            if !tails.contains(&node) {
                tails.push(node);
            }
        }
        Ok(tails)
    })
}

const NOWHERE: Out<()> = Out(std::ptr::null_mut());

fn nowhere<T>() -> Out<T> {
    Out(NOWHERE.0.cast())
}

faces! {
    "cuStreamBeginCapture" 10000 cuStreamBeginCapture (stream: CUstream) / cuStreamBeginCapture_ptsz 10000 |default| {
        begin_new(default, stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
    }
    "cuStreamBeginCapture" 10010 cuStreamBeginCapture_v2 (stream: CUstream, mode: u32) / cuStreamBeginCapture_v2_ptsz 10010 |default| {
        begin_new(default, stream, mode)
    }
    "cuStreamBeginCaptureToGraph" 12030 cuStreamBeginCaptureToGraph
        (stream: CUstream, graph: CUgraph, nodes: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize, mode: u32) / cuStreamBeginCaptureToGraph_ptsz 12030 |default| {
        let _ = edges;
        let stream = context::stream(default, stream)?;
        let graph = graph::by_handle(graph)?;
        let tails = graph::names(nodes, count)?;
        if tails.iter().any(|id| !graph::is_in(*id, graph.handle)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        capture::begin(&stream, mode, Target { graph: graph.handle, own: false }, tails)
    }
    "cuStreamEndCapture" 10000 cuStreamEndCapture (stream: CUstream, out: Out<CUgraph>) / cuStreamEndCapture_ptsz 10000 |default| {
        end(default, stream, out)
    }
    "cuStreamIsCapturing" 10000 cuStreamIsCapturing (stream: CUstream, out: Out<u32>) / cuStreamIsCapturing_ptsz 10000 |default| {
        out.check()?;
        out.set(status(default, stream)?.0)
    }
    "cuStreamGetCaptureInfo" 10010 cuStreamGetCaptureInfo (stream: CUstream, status: Out<u32>, id: Out<u64>) / cuStreamGetCaptureInfo_ptsz 10010 |default| {
        info(default, stream, Info { status, id, graph: nowhere(), tails: nowhere(), edges: nowhere(), count: nowhere() })
    }
    "cuStreamGetCaptureInfo" 11030 cuStreamGetCaptureInfo_v2
        (stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, tails: Out<*const CUgraphNode>, count: Out<usize>) / cuStreamGetCaptureInfo_v2_ptsz 11030 |default| {
        info(default, stream, Info { status, id, graph, tails, edges: nowhere(), count })
    }
    "cuStreamGetCaptureInfo" 12030 cuStreamGetCaptureInfo_v3
        (stream: CUstream, status: Out<u32>, id: Out<u64>, graph: Out<CUgraph>, tails: Out<*const CUgraphNode>, edges: Out<*const CUgraphEdgeData>, count: Out<usize>) / cuStreamGetCaptureInfo_v3_ptsz 12030 |default| {
        info(default, stream, Info { status, id, graph, tails, edges, count })
    }
    "cuStreamUpdateCaptureDependencies" 11030 cuStreamUpdateCaptureDependencies
        (stream: CUstream, nodes: In<CUgraphNode>, count: usize, flags: u32) / cuStreamUpdateCaptureDependencies_ptsz 11030 |default| {
        redirect(default, stream, nodes, count, flags)
    }
    "cuStreamUpdateCaptureDependencies" 12030 cuStreamUpdateCaptureDependencies_v2
        (stream: CUstream, nodes: In<CUgraphNode>, edges: In<CUgraphEdgeData>, count: usize, flags: u32) / cuStreamUpdateCaptureDependencies_v2_ptsz 12030 |default| {
        let _ = edges;
        redirect(default, stream, nodes, count, flags)
    }
    "cuThreadExchangeStreamCaptureMode" 10010 cuThreadExchangeStreamCaptureMode (mode: Out<u32>) {
        driver()?;
        let wanted = mode.input().get()?;
        if wanted > CU_STREAM_CAPTURE_MODE_RELAXED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        mode.set(capture::exchange_mode(wanted))
    }
}
