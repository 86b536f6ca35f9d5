//! The linker, which makes an image for the module calls from PTX and objects.
//!
//! Nothing is compiled: the image is the added PTX text, one piece after the other. An object that is no text makes
//! the image opaque: it has every name that is looked up.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex},
};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_PTX,
        CUDA_ERROR_INVALID_VALUE, CUerror, CUresult,
    },
    types::CUlinkState,
};

use crate::{
    c::{In, Out, Text, read_bytes},
    code::{
        image::{FATBIN, Image},
        jit::{Logs, Options},
    },
    context::current,
    faces::faces,
    handles::{Table, fresh, lock},
};

/// The inputs added so far, and the image once it is complete.
#[derive(Debug, Default)]
struct Link {
    text: Vec<u8>,
    opaque: bool,
    image: Vec<u8>,
    logs: Logs,
}

static LINKS: Table<Mutex<Link>> = Table::new();

/// `CU_JIT_INPUT_PTX`, and the kind of file that may hold any.
const PTX: u32 = 1;

fn link(handle: CUlinkState) -> Result<Arc<Mutex<Link>>, CUerror> {
    current()?;
    LINKS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn create(out: Out<CUlinkState>, options: Options) -> CUresult {
    current()?;
    out.check()?;
    let handle = fresh();
    let logs = Logs::of(options)?;
    logs.took_text("");
    let link = Link {
        logs,
        ..Link::default()
    };
    LINKS.insert(handle, Arc::new(Mutex::new(link)));
    out.set(handle as CUlinkState)
}

fn add(handle: CUlinkState, kind: u32, bytes: &[u8]) -> CUresult {
    let link = link(handle)?;
    let mut link = lock(&link);
    if kind > 6 || !link.image.is_empty() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let text = String::from_utf8_lossy(bytes);
    if kind == PTX {
        let Some(image) = Image::ptx(&text) else {
            link.logs.refused();
            return Err(CUDA_ERROR_INVALID_PTX);
        };
        link.logs.took(&image);
        link.text.extend(text.trim_end_matches('\0').bytes());
        link.text.push(b'\n');
    } else {
        link.opaque = true;
    }
    Ok(())
}

fn add_data(handle: CUlinkState, kind: u32, data: u64, bytes: usize) -> CUresult {
    link(handle)?;
    if data == 0 || bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    add(handle, kind, &read_bytes(data, bytes))
}

fn add_file(handle: CUlinkState, kind: u32, path: Text) -> CUresult {
    link(handle)?;
    let bytes = std::fs::read(path.get()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    add(handle, kind, &bytes)
}

faces! {
    "cuLinkCreate" 5050 cuLinkCreate (count: u32, options: In<u32>, values: In<*mut c_void>, out: Out<CUlinkState>) {
        create(out, Options { count, keys: options, values })
    }
    "cuLinkCreate" 6050 cuLinkCreate_v2 (count: u32, options: In<u32>, values: In<*mut c_void>, out: Out<CUlinkState>) {
        create(out, Options { count, keys: options, values })
    }
    "cuLinkAddData" 5050 cuLinkAddData (state: CUlinkState, kind: u32, data: u64, bytes: usize, name: u64, count: u32, options: In<u32>, values: In<*mut c_void>) {
        let _ = (name, count, options, values);
        add_data(state, kind, data, bytes)
    }
    "cuLinkAddData" 6050 cuLinkAddData_v2 (state: CUlinkState, kind: u32, data: u64, bytes: usize, name: u64, count: u32, options: In<u32>, values: In<*mut c_void>) {
        let _ = (name, count, options, values);
        add_data(state, kind, data, bytes)
    }
    "cuLinkAddFile" 5050 cuLinkAddFile (state: CUlinkState, kind: u32, path: Text, count: u32, options: In<u32>, values: In<*mut c_void>) {
        let _ = (count, options, values);
        add_file(state, kind, path)
    }
    "cuLinkAddFile" 6050 cuLinkAddFile_v2 (state: CUlinkState, kind: u32, path: Text, count: u32, options: In<u32>, values: In<*mut c_void>) {
        let _ = (count, options, values);
        add_file(state, kind, path)
    }
    "cuLinkComplete" 5050 cuLinkComplete (state: CUlinkState, image: Out<*const c_void>, bytes: Out<usize>) {
        let link = link(state)?;
        let mut link = lock(&link);
        image.check()?;
        if link.image.is_empty() {
            link.image = if link.opaque { FATBIN.to_le_bytes().to_vec() } else { link.text.clone() };
            link.image.push(0);
        }
        // Lives until the link is destroyed; nothing can be added any more.
        image.set(link.image.as_ptr().cast())?;
        bytes.set_if_wanted(link.image.len());
        Ok(())
    }
    "cuLinkDestroy" 5050 cuLinkDestroy (state: CUlinkState) {
        link(state)?;
        LINKS.remove(state as u64);
        Ok(())
    }
}
