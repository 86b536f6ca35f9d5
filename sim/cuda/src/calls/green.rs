//! Green contexts: contexts on a part of a device's multiprocessors.
//!
//! A resource names multiprocessors. A part of them becomes a description, and the description a green context. It
//! keeps its device's primary context alive, and its allocations belong to that context. Its streams outlive it,
//! detached. The number of multiprocessors does not change a kernel's duration.

use std::sync::Arc;

use gpushare_abi::errors::{
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, CUDA_ERROR_INVALID_RESOURCE_TYPE,
    CUDA_ERROR_INVALID_VALUE, CUerror, CUresult,
};
use gpushare_abi::types::{
    CU_STREAM_NON_BLOCKING, CUcontext, CUdevResource, CUdevResourceDesc, CUdevice, CUevent,
    CUgreenCtx, CUstream,
};

use crate::c::{In, Out};
use crate::calls::context::{release_primary, retain_primary};
use crate::calls::event::{await_in_all, record_all};
use crate::context::{self, Context};
use crate::driver::driver;
use crate::event;
use crate::faces::{DefaultStream, faces};
use crate::handles::{Table, fresh};
use crate::stream::Stream;
use crate::{capture, submit};

/// A green context.
#[derive(Debug)]
pub struct Green {
    context: Arc<Context>,
    part: Part,
}

/// Multiprocessors of a device.
#[derive(Clone, Copy, Debug)]
struct Part {
    device: i32,
    first: u32,
    count: u32,
}

static GREENS: Table<Green> = Table::new();
static DESCRIPTIONS: Table<Vec<Part>> = Table::new();

const INVALID: u32 = 0;
/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, without which none is made.
const DEFAULT_STREAM: u32 = 1;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORE_COSCHEDULING: u32 = 1;
const SPLIT_FLAGS: u32 = 3;
/// Mark that identifies a resource created by the simulator.
const MARK: u32 = 0x5e50_a1ce;

/// Returns the smallest part of a device, and the unit of a part's size, in multiprocessors.
fn steps(device: i32, flags: u32) -> Result<(u32, u32), CUerror> {
    Ok(match driver()?.device(device)?.compute.major {
        ..=6 => (1, 1),
        7 => (2, 2),
        8 => (4, 2),
        _ if flags & IGNORE_COSCHEDULING != 0 => (2, 2),
        _ => (8, 8),
    })
}

impl Part {
    fn whole(device: i32) -> Result<Self, CUerror> {
        let count = driver()?.device(device)?.multiprocessors;
        Ok(Self {
            device,
            first: 0,
            count,
        })
    }

    fn resource(self) -> Result<CUdevResource, CUerror> {
        let (least, step) = steps(self.device, 0)?;
        let mut padding = [0; 92];
        let words = [MARK, self.device as u32, self.first];
        for (place, word) in padding.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Ok(CUdevResource {
            type_: if self.count == 0 {
                INVALID
            } else {
                MULTIPROCESSORS
            },
            padding,
            resource: [pair(self.count, least), pair(step, 0), 0, 0, 0, 0],
        })
    }

    fn of(resource: &CUdevResource) -> Result<Self, CUerror> {
        if resource.type_ != MULTIPROCESSORS {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let word = |at: usize| {
            let bytes = resource.padding[at * 4..][..4].try_into();
            bytes.map_or(0, u32::from_le_bytes)
        };
        let count = resource.resource[0] as u32;
        let part = Self {
            device: word(1) as i32,
            first: word(2),
            count,
        };
        let all = Self::whole(part.device).map_or(0, |whole| whole.count);
        let fits = part.first.checked_add(count).is_some_and(|end| end <= all);
        if word(0) != MARK || count == 0 || !fits {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        Ok(part)
    }

    fn after(self, skipped: u32, count: u32) -> Self {
        let first = self.first + skipped;
        Self {
            first,
            count,
            ..self
        }
    }
}

fn green(handle: CUgreenCtx) -> Result<Arc<Green>, CUerror> {
    driver()?;
    GREENS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Returns the handle of the green context that a stream is in; NULL if it is in none.
pub fn of_stream(stream: &Stream) -> CUgreenCtx {
    of_context(stream.context).map_or(0, |(handle, _)| handle) as CUgreenCtx
}

fn of_context(context: u64) -> Option<(u64, Arc<Green>)> {
    GREENS.find(|green| green.context.handle == context)
}

fn split(
    out: Out<CUdevResource>,
    groups: Out<u32>,
    input: In<CUdevResource>,
    rest: Out<CUdevResource>,
    flags: u32,
    at_least: u32,
) -> CUresult {
    let whole = Part::of(&input.get()?)?;
    let asked = groups.input().get()?;
    if flags & !SPLIT_FLAGS != 0 || (!out.is_null() && asked == 0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (least, step) = steps(whole.device, flags)?;
    let size = at_least.max(least).checked_next_multiple_of(step);
    let size = size.ok_or(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)?;
    let fit = whole.count / size;
    if fit == 0 {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let made = if out.is_null() { fit } else { fit.min(asked) };
    for group in 0..made {
        if !out.is_null() {
            let part = whole.after(group * size, size);
            out.set_at(group as usize, part.resource()?)?;
        }
    }
    let left = whole.after(made * size, whole.count - made * size);
    rest.set_if_wanted(left.resource()?);
    groups.set(made)
}

fn describe(out: Out<CUdevResourceDesc>, resources: In<CUdevResource>, count: u32) -> CUresult {
    driver()?;
    out.check()?;
    let resources = resources.all(count as usize)?;
    let parts = resources
        .iter()
        .map(Part::of)
        .collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() || parts.iter().any(|part| part.device != parts[0].device) {
        return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let handle = fresh();
    DESCRIPTIONS.insert(handle, Arc::new(parts));
    out.set(handle as CUdevResourceDesc)
}

fn create(out: Out<CUgreenCtx>, description: u64, device: i32, flags: u32) -> CUresult {
    driver()?.device(device)?;
    out.check()?;
    let parts = DESCRIPTIONS
        .get(description)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if flags != DEFAULT_STREAM || parts[0].device != device {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let part = Part {
        count: parts.iter().map(|part| part.count).sum(),
        ..parts[0]
    };
    let context = retain_primary(device)?.make_green();
    let handle = fresh();
    GREENS.insert(handle, Arc::new(Green { context, part }));
    out.set(handle as CUgreenCtx)
}

fn destroy(handle: CUgreenCtx) -> CUresult {
    let green = green(handle)?;
    if GREENS.remove(handle as u64).is_none() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let context = &green.context;
    let captures = capture::context_gone(context.handle);
    captures.into_iter().for_each(submit::discard);
    context.retire();
    context.streams.detach();
    // Queued work of the context is still done.
    release_primary(context.device)
}

fn resource(out: Out<CUdevResource>, kind: u32, part: Part) -> CUresult {
    if kind != MULTIPROCESSORS {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    out.set(part.resource()?)
}

fn stream_in(out: Out<CUstream>, handle: CUgreenCtx, flags: u32, priority: i32) -> CUresult {
    let green = green(handle)?;
    out.check()?;
    if flags != CU_STREAM_NON_BLOCKING {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    out.set(green.context.streams.create(flags, priority).handle as CUstream)
}

faces! {
    "cuDeviceGetDevResource" 12040 cuDeviceGetDevResource (device: CUdevice, out: Out<CUdevResource>, kind: u32) {
        resource(out, kind, Part::whole(device)?)
    }
    "cuCtxGetDevResource" 12040 cuCtxGetDevResource (handle: CUcontext, out: Out<CUdevResource>, kind: u32) {
        let context = context::by_handle(handle)?;
        let part = match of_context(context.handle) {
            Some((_, green)) => green.part,
            None => Part::whole(context.device)?,
        };
        resource(out, kind, part)
    }
    "cuGreenCtxGetDevResource" 12040 cuGreenCtxGetDevResource (handle: CUgreenCtx, out: Out<CUdevResource>, kind: u32) {
        resource(out, kind, green(handle)?.part)
    }
    "cuDevSmResourceSplitByCount" 12040 cuDevSmResourceSplitByCount
        (out: Out<CUdevResource>, groups: Out<u32>, input: In<CUdevResource>, rest: Out<CUdevResource>, flags: u32, at_least: u32) {
        driver()?;
        split(out, groups, input, rest, flags, at_least)
    }
    "cuDevResourceGenerateDesc" 12040 cuDevResourceGenerateDesc (out: Out<CUdevResourceDesc>, resources: In<CUdevResource>, count: u32) {
        describe(out, resources, count)
    }
    "cuGreenCtxCreate" 12040 cuGreenCtxCreate (out: Out<CUgreenCtx>, description: CUdevResourceDesc, device: CUdevice, flags: u32) {
        create(out, description as u64, device, flags)
    }
    "cuGreenCtxDestroy" 12040 cuGreenCtxDestroy (handle: CUgreenCtx) { destroy(handle) }
    "cuCtxFromGreenCtx" 12040 cuCtxFromGreenCtx (out: Out<CUcontext>, handle: CUgreenCtx) {
        out.set(green(handle)?.context.handle as CUcontext)
    }
    "cuGreenCtxGetId" 12090 cuGreenCtxGetId (handle: CUgreenCtx, out: Out<u64>) {
        green(handle)?;
        out.set(handle as u64)
    }
    "cuGreenCtxStreamCreate" 12050 cuGreenCtxStreamCreate (out: Out<CUstream>, handle: CUgreenCtx, flags: u32, priority: i32) {
        stream_in(out, handle, flags, priority)
    }
    "cuGreenCtxRecordEvent" 12040 cuGreenCtxRecordEvent (handle: CUgreenCtx, event: CUevent) {
        let green = green(handle)?;
        record_all(&green.context, &event::by_handle(event)?)
    }
    "cuGreenCtxWaitEvent" 12040 cuGreenCtxWaitEvent (handle: CUgreenCtx, event: CUevent) {
        let green = green(handle)?;
        await_in_all(&green.context, &event::by_handle(event)?)
    }
    "cuStreamGetGreenCtx" 12040 cuStreamGetGreenCtx (stream: CUstream, out: Out<CUgreenCtx>) {
        if stream.is_null() {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let stream = context::stream(DefaultStream::Legacy, stream)?;
        out.set(of_stream(&stream))
    }
}
