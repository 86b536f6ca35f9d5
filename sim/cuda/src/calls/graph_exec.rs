//! The calls on graphs that are ready to launch.

use std::ffi::c_char;

use gpushare_abi::errors::{CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CUerror, CUresult};
use gpushare_abi::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode,
    CUstream,
};

use crate::c::{Out, put_text};
use crate::faces::{DefaultStream, faces};
use crate::graph::exec::{Different, Exec, destroy, exec};
use crate::graph::{by_handle, conditional};
use crate::{capture, context, submit};

fn instantiate(out: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> CUresult {
    let graph = by_handle(graph)?;
    out.check()?;
    out.set(Exec::instantiate(&graph, flags)? as CUgraphExec)
}

/// Instantiates a graph for the first two versions of the call, which report errors in a log.
fn instantiate_with_log(
    out: Out<CUgraphExec>,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    log: Out<c_char>,
    room: usize,
) -> CUresult {
    node.set_if_wanted(std::ptr::null_mut());
    if !log.is_null() && room > 0 {
        put_text(log, room.min(1 << 20) as i32, "")?;
    }
    instantiate(out, graph, 0)
}

fn instantiate_with_params(
    default: DefaultStream,
    out: Out<CUgraphExec>,
    graph: CUgraph,
    params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> CUresult {
    const SUCCESS: u32 = 0;
    const ERROR: u32 = 1;
    const CONDITIONAL_HANDLE_UNUSED: u32 = 5;
    const UPLOAD: u64 = 2;
    let mut given = params.input().get()?;
    let answer = instantiate(out, graph, given.flags);
    let upload = || {
        let made = out.input().get()?;
        let uploaded =
            context::stream(default, given.hUploadStream).and_then(|_| exec(made)?.upload());
        uploaded.inspect_err(|_| _ = destroy(made))
    };
    let answer = match answer {
        Ok(()) if given.flags & UPLOAD != 0 => upload(),
        other => other,
    };
    given.hErrNode_out = std::ptr::null_mut();
    given.result_out = match answer {
        Ok(()) => SUCCESS,
        Err(_) if conditional::any_unused(graph as u64) => CONDITIONAL_HANDLE_UNUSED,
        Err(_) => ERROR,
    };
    params.set(given)?;
    answer
}

fn update(handle: CUgraphExec, graph: CUgraph) -> Result<Result<(), Different>, CUerror> {
    let (exec, graph) = (exec(handle)?, by_handle(graph)?);
    Ok(exec.update(&graph))
}

faces! {
    "cuGraphInstantiate" 10000 cuGraphInstantiate
        (out: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, log: Out<c_char>, room: usize) {
        instantiate_with_log(out, graph, node, log, room)
    }
    "cuGraphInstantiate" 11000 cuGraphInstantiate_v2
        (out: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, log: Out<c_char>, room: usize) {
        instantiate_with_log(out, graph, node, log, room)
    }
    "cuGraphInstantiateWithFlags" 11040 cuGraphInstantiateWithFlags (out: Out<CUgraphExec>, graph: CUgraph, flags: u64) {
        instantiate(out, graph, flags)
    }
    "cuGraphInstantiateWithParams" 12000 cuGraphInstantiateWithParams
        (out: Out<CUgraphExec>, graph: CUgraph, params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>) / cuGraphInstantiateWithParams_ptsz 12000 |default| {
        instantiate_with_params(default, out, graph, params)
    }
    "cuGraphExecGetFlags" 12000 cuGraphExecGetFlags (handle: CUgraphExec, out: Out<u64>) {
        out.set(exec(handle)?.flags)
    }
    "cuGraphUpload" 11010 cuGraphUpload (handle: CUgraphExec, stream: CUstream) / cuGraphUpload_ptsz 11010 |default| {
        let exec = exec(handle)?;
        context::stream(default, stream)?;
        exec.upload()
    }
    "cuGraphLaunch" 10000 cuGraphLaunch (handle: CUgraphExec, stream: CUstream) / cuGraphLaunch_ptsz 10000 |default| {
        let exec = exec(handle)?;
        let stream = context::stream(default, stream)?;
        if capture::is_capturing(&stream) {
            return submit::capture_node(&stream, || exec.as_child()).map(|_| ());
        }
        exec.launch(&stream)
    }
    "cuGraphExecDestroy" 10000 cuGraphExecDestroy (handle: CUgraphExec) { destroy(handle) }
    "cuGraphExecUpdate" 10020 cuGraphExecUpdate (handle: CUgraphExec, graph: CUgraph, node: Out<CUgraphNode>, reason: Out<u32>) {
        let result = update(handle, graph)?;
        let (code, id) = result.err().unwrap_or((0, 0));
        node.set_if_wanted(id as CUgraphNode);
        reason.set(code)?;
        result.map_err(|_| CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    }
    "cuGraphExecUpdate" 12000 cuGraphExecUpdate_v2 (handle: CUgraphExec, graph: CUgraph, info: Out<CUgraphExecUpdateResultInfo>) {
        let result = update(handle, graph)?;
        let (code, id) = result.err().unwrap_or((0, 0));
        let null = std::ptr::null_mut();
        info.set(CUgraphExecUpdateResultInfo { result: code, errorNode: id as CUgraphNode, errorFromNode: null })?;
        result.map_err(|_| CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    }
}
