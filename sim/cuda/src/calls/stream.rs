//! The calls on streams.

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUresult};
use gpushare_abi::types::{
    CU_STREAM_NON_BLOCKING, CUcontext, CUdevice, CUdeviceptr, CUgreenCtx, CUstream,
    CUstreamBatchMemOpParams,
};

use crate::c::{In, Out};
use crate::calls::green;
use crate::context::current;
use crate::faces::{DefaultStream, faces};
use crate::graph::node::Node;
use crate::work::Word;
use crate::{capture, context, stream, submit};

fn create(out: Out<CUstream>, flags: u32, priority: i32) -> CUresult {
    let context = current()?;
    out.check()?;
    if flags & !CU_STREAM_NON_BLOCKING != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    out.set(context.streams.create(flags, priority).handle as CUstream)
}

fn word(default: DefaultStream, stream: CUstream, word: Word) -> CUresult {
    current()?;
    let words = [word.checked()?];
    submit::submit(
        &context::stream(default, stream)?,
        Node::Words(words.into()),
    )
}

fn batch(
    default: DefaultStream,
    stream: CUstream,
    count: u32,
    list: In<CUstreamBatchMemOpParams>,
) -> CUresult {
    current()?;
    let target = context::stream(default, stream)?;
    submit::submit(&target, Node::Words(Word::list(count, list)?.into()))
}

/// Destroys a stream, and discards its capture.
fn destroy(handle: CUstream) -> CUresult {
    let stream = stream::destroy(handle as u64)?;
    if let Some(target) = capture::stream_gone(stream.handle) {
        submit::discard(target);
    }
    Ok(())
}

fn context_of(default: DefaultStream, stream: CUstream, out: Out<CUcontext>) -> CUresult {
    let stream = context::stream(default, stream)?;
    out.set(stream.context as CUcontext)
}

fn wait_value(address: u64, value: u64, wide: bool, flags: u32) -> Word {
    Word {
        address,
        value,
        wide,
        wait: Some(flags),
    }
}

fn write_value(address: u64, value: u64, wide: bool) -> Word {
    Word {
        address,
        value,
        wide,
        wait: None,
    }
}

/// Checks for a launch attribute that streams have: access policy, synchronisation policy, priority, memory domains.
fn known(attribute: u32) -> CUresult {
    let is_known = matches!(attribute, 1 | 3 | 8..=10);
    is_known.then_some(()).ok_or(CUDA_ERROR_INVALID_VALUE)
}

faces! {
    "cuStreamCreate" 2000 cuStreamCreate (out: Out<CUstream>, flags: u32) { create(out, flags, 0) }
    "cuStreamCreateWithPriority" 5050 cuStreamCreateWithPriority (out: Out<CUstream>, flags: u32, priority: i32) {
        create(out, flags, priority)
    }
    "cuStreamDestroy" 2000 cuStreamDestroy (stream: CUstream) { destroy(stream) }
    "cuStreamDestroy" 4000 cuStreamDestroy_v2 (stream: CUstream) { destroy(stream) }
    "cuStreamSynchronize" 2000 cuStreamSynchronize (stream: CUstream) / cuStreamSynchronize_ptsz 7000 |default| {
        submit::synchronize(&context::stream(default, stream)?)
    }
    "cuStreamQuery" 2000 cuStreamQuery (stream: CUstream) / cuStreamQuery_ptsz 7000 |default| {
        submit::query(&context::stream(default, stream)?)
    }
    "cuStreamGetPriority" 5050 cuStreamGetPriority (stream: CUstream, out: Out<i32>) / cuStreamGetPriority_ptsz 7000 |default| {
        out.set(context::stream(default, stream)?.priority)
    }
    "cuStreamGetFlags" 5050 cuStreamGetFlags (stream: CUstream, out: Out<u32>) / cuStreamGetFlags_ptsz 7000 |default| {
        out.set(context::stream(default, stream)?.flags)
    }
    "cuStreamGetId" 12000 cuStreamGetId (stream: CUstream, out: Out<u64>) / cuStreamGetId_ptsz 12000 |default| {
        out.set(context::stream(default, stream)?.handle)
    }
    "cuStreamGetDevice" 12080 cuStreamGetDevice (stream: CUstream, out: Out<CUdevice>) / cuStreamGetDevice_ptsz 12080 |default| {
        out.set(context::stream(default, stream)?.device)
    }
    "cuStreamGetCtx" 9020 cuStreamGetCtx (stream: CUstream, out: Out<CUcontext>) / cuStreamGetCtx_ptsz 9020 |default| {
        context_of(default, stream, out)
    }
    "cuStreamGetCtx" 12050 cuStreamGetCtx_v2 (stream: CUstream, out: Out<CUcontext>, green_out: Out<CUgreenCtx>) / cuStreamGetCtx_v2_ptsz 12050 |default| {
        context_of(default, stream, out)?;
        green_out.set(green::of_stream(&*context::stream(default, stream)?))
    }
    "cuStreamCopyAttributes" 11000 cuStreamCopyAttributes (to: CUstream, from: CUstream) / cuStreamCopyAttributes_ptsz 11000 |default| {
        context::stream(default, to)?;
        context::stream(default, from).map(|_| ())
    }
    "cuStreamSetAttribute" 11000 cuStreamSetAttribute (stream: CUstream, attribute: u32, value: In<u64>) / cuStreamSetAttribute_ptsz 11000 |default| {
        known(attribute)?;
        context::stream(default, stream)?;
        value.get().map(|_| ())
    }
    "cuStreamGetAttribute" 11000 cuStreamGetAttribute (stream: CUstream, attribute: u32, value: Out<u64>) / cuStreamGetAttribute_ptsz 11000 |default| {
        known(attribute)?;
        context::stream(default, stream)?;
        value.set(0)
    }
    "cuStreamWaitValue32" 8000 cuStreamWaitValue32 (stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) / cuStreamWaitValue32_ptsz 8000 |default| {
        word(default, stream, wait_value(address, value.into(), false, flags))
    }
    "cuStreamWaitValue32" 11070 cuStreamWaitValue32_v2 (stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) / cuStreamWaitValue32_v2_ptsz 11070 |default| {
        word(default, stream, wait_value(address, value.into(), false, flags))
    }
    "cuStreamWaitValue64" 9000 cuStreamWaitValue64 (stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) / cuStreamWaitValue64_ptsz 9000 |default| {
        word(default, stream, wait_value(address, value, true, flags))
    }
    "cuStreamWaitValue64" 11070 cuStreamWaitValue64_v2 (stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) / cuStreamWaitValue64_v2_ptsz 11070 |default| {
        word(default, stream, wait_value(address, value, true, flags))
    }
    "cuStreamWriteValue32" 8000 cuStreamWriteValue32 (stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) / cuStreamWriteValue32_ptsz 8000 |default| {
        let _ = flags;
        word(default, stream, write_value(address, value.into(), false))
    }
    "cuStreamWriteValue32" 11070 cuStreamWriteValue32_v2 (stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) / cuStreamWriteValue32_v2_ptsz 11070 |default| {
        let _ = flags;
        word(default, stream, write_value(address, value.into(), false))
    }
    "cuStreamWriteValue64" 9000 cuStreamWriteValue64 (stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) / cuStreamWriteValue64_ptsz 9000 |default| {
        let _ = flags;
        word(default, stream, write_value(address, value, true))
    }
    "cuStreamWriteValue64" 11070 cuStreamWriteValue64_v2 (stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) / cuStreamWriteValue64_v2_ptsz 11070 |default| {
        let _ = flags;
        word(default, stream, write_value(address, value, true))
    }
    "cuStreamBatchMemOp" 8000 cuStreamBatchMemOp (stream: CUstream, count: u32, list: In<CUstreamBatchMemOpParams>, flags: u32) / cuStreamBatchMemOp_ptsz 8000 |default| {
        let _ = flags;
        batch(default, stream, count, list)
    }
    "cuStreamBatchMemOp" 11070 cuStreamBatchMemOp_v2 (stream: CUstream, count: u32, list: In<CUstreamBatchMemOpParams>, flags: u32) / cuStreamBatchMemOp_v2_ptsz 11070 |default| {
        let _ = flags;
        batch(default, stream, count, list)
    }
}
