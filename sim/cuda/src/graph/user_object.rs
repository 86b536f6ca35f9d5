//! User objects: objects of the application that graphs keep alive, and that are destroyed by a callback.
//!
//! An object has references; the release of the last one calls its destructor. A graph's references are released when
//! the graph is destroyed. A clone has the same number of its own. So has an executable, until it is destroyed and
//! its launches are done.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use gpushare_abi::errors::{CUDA_ERROR_INVALID_VALUE, CUerror, CUresult};
use gpushare_abi::types::{CUgraph, CUhostFn, CUuserObject};

use crate::c::{self, Out};
use crate::driver::{Driver, driver};
use crate::faces::faces;
use crate::graph;
use crate::handles::{Table, fresh, lock};
use crate::work::Work;

#[derive(Debug)]
struct Object {
    references: Mutex<u32>,
    destructor: unsafe extern "C" fn(*mut c_void),
    data: u64,
}

static OBJECTS: Table<Object> = Table::new();

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, the one kind there is.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the caller's references become the graph's.
const MOVE: u32 = 1;

fn get(handle: u64) -> Result<Arc<Object>, CUerror> {
    driver()?;
    OBJECTS.get(handle).ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn retain(handle: u64, count: u32) -> CUresult {
    let object = get(handle)?;
    let mut references = lock(&object.references);
    *references = references
        .checked_add(count)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    Ok(())
}

fn release(handle: u64, count: u32) -> CUresult {
    let object = get(handle)?;
    let left = {
        let mut references = lock(&object.references);
        *references = references
            .checked_sub(count)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        *references
    };
    if left == 0 && OBJECTS.remove(handle).is_some() {
        c::call_host(object.destructor, object.data);
    }
    Ok(())
}

/// References that a graph or an executable holds, by the object's handle. Dropping them releases them.
#[derive(Debug, Default)]
pub struct Held(HashMap<u64, u32>);

impl Held {
    /// Returns a second set of the same references.
    pub fn copied(&self) -> Self {
        let mut copy = Self::default();
        for (handle, count) in &self.0 {
            if retain(*handle, *count).is_ok() {
                copy.add(*handle, *count);
            }
        }
        copy
    }

    /// Moves the references of another set to this one.
    pub fn take_over(&mut self, mut other: Self) {
        for (handle, count) in std::mem::take(&mut other.0) {
            self.add(handle, count);
        }
    }

    fn add(&mut self, handle: u64, count: u32) {
        *self.0.entry(handle).or_default() += count;
    }
}

/// Does nothing; the objects are held until a launch has come to this point.
impl Work for Held {
    fn run(&self, _: &Driver, _: i32, ready: u64) -> u64 {
        ready
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (handle, count) in self.0.drain() {
            // These references keep the object there.
            let _ = release(handle, count);
        }
    }
}

faces! {
    "cuUserObjectCreate" 11030 cuUserObjectCreate (out: Out<CUuserObject>, data: u64, destructor: CUhostFn, references: u32, flags: u32) {
        driver()?;
        out.check()?;
        let destructor = destructor.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if references == 0 || references > i32::MAX as u32 || flags != NO_DESTRUCTOR_SYNC {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = fresh();
        OBJECTS.insert(handle, Arc::new(Object { references: Mutex::new(references), destructor, data }));
        out.set(handle as CUuserObject)
    }
    "cuUserObjectRetain" 11030 cuUserObjectRetain (object: CUuserObject, count: u32) {
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        retain(object as u64, count)
    }
    "cuUserObjectRelease" 11030 cuUserObjectRelease (object: CUuserObject, count: u32) {
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        release(object as u64, count)
    }
    "cuGraphRetainUserObject" 11030 cuGraphRetainUserObject (graph: CUgraph, object: CUuserObject, count: u32, flags: u32) {
        let graph = graph::by_handle(graph)?;
        get(object as u64)?;
        if count == 0 || flags > MOVE {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags != MOVE {
            retain(object as u64, count)?;
        }
        lock(&graph.objects).add(object as u64, count);
        Ok(())
    }
    "cuGraphReleaseUserObject" 11030 cuGraphReleaseUserObject (graph: CUgraph, object: CUuserObject, count: u32) {
        let graph = graph::by_handle(graph)?;
        {
            let mut held = lock(&graph.objects);
            let own = held.0.get_mut(&(object as u64)).filter(|_| count > 0);
            let own = own.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            let Some(left) = own.checked_sub(count) else {
                // More than the graph has: the driver says yes and releases none.
                return Ok(());
            };
            *own = left;
        }
        release(object as u64, count)
    }
}
