//! Modules, libraries and the kernels in them.

mod calls;

pub use calls::FACES;

use std::{
    collections::{HashMap, HashSet},
    ffi::{c_char, c_void},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI32, Ordering::Relaxed},
    },
};

use gpushare_abi::{
    errors::{
        CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUerror, CUresult,
    },
    types::{CUdevice, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmodule},
};

use crate::{
    c::{In, Out, Text},
    capture,
    code::image::{Entry, Image},
    context::{self, current},
    driver::driver,
    handles::{Table, fresh, lock},
    memory::heap::{self, Kind},
};

/// A module, or a library, which has no context.
#[derive(Debug)]
pub struct Module {
    handle: u64,
    /// The context's handle; 0 for a library.
    context: u64,
    image: Image,
    functions: Mutex<HashMap<String, Arc<Function>>>,
    /// Variables that have memory: (context, name) → (address, bytes).
    globals: Mutex<HashMap<(u64, String), (u64, usize)>>,
    /// The module that stands for a library in a context.
    modules: Mutex<HashMap<u64, u64>>,
}

/// A kernel.
#[derive(Debug)]
pub struct Function {
    /// The handle, as a function and as a kernel.
    pub handle: u64,
    /// The name, for callers that ask for it.
    pub name: std::ffi::CString,
    /// The entry point.
    pub entry: Entry,
    module: u64,
    context: u64,
    attributes: Mutex<HashMap<u32, i32>>,
    /// Block shape and shared memory of the launches before `cuLaunchKernel`.
    pub legacy: Mutex<Legacy>,
    cache: AtomicI32,
}

/// The settings of `cuFuncSetBlockShape`, `cuFuncSetSharedSize` and `cuParamSet…`.
#[derive(Clone, Debug, Default)]
pub struct Legacy {
    /// The block's shape.
    pub block: [u32; 3],
    /// The packed arguments.
    pub arguments: Vec<u8>,
}

/// Shared memory that a block has without asking; more dynamic memory is there when the function's attribute says so.
const SHARED_UNASKED: u32 = 48 << 10;
/// Shared memory that a block may ask for.
pub const SHARED_LIMIT: u32 = 227 << 10;

static MODULES: Table<Module> = Table::new();
static FUNCTIONS: Table<Function> = Table::new();

/// Returns the function or kernel of a handle.
pub fn function(handle: CUfunction) -> Result<Arc<Function>, CUerror> {
    driver()?;
    FUNCTIONS
        .get(handle as u64)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn kernel(handle: CUkernel) -> Result<Arc<Function>, CUerror> {
    function(handle.cast())
}

fn module(handle: u64) -> Result<Arc<Module>, CUerror> {
    driver()?;
    MODULES.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

/// Forgets the modules of a context.
pub fn unload_all(context: u64) {
    for module in MODULES.remove_where(|module| module.context == context) {
        module.unload();
    }
}

impl Module {
    /// Loads a module into the current context.
    fn load_here(image: Image) -> Result<Arc<Self>, CUerror> {
        let context = current()?;
        let module = Self::load(image, context.owner);
        context.load_code(module.handle).inspect_err(|_| {
            MODULES.remove(module.handle);
        })?;
        Ok(module)
    }

    fn load(image: Image, context: u64) -> Arc<Self> {
        let handle = fresh();
        let module = Arc::new(Self {
            handle,
            context,
            image,
            functions: Mutex::default(),
            globals: Mutex::default(),
            modules: Mutex::default(),
        });
        MODULES.insert(handle, Arc::clone(&module));
        module
    }

    fn function(&self, name: &str) -> Result<Arc<Function>, CUerror> {
        if let Some(function) = lock(&self.functions).get(name) {
            return Ok(Arc::clone(function));
        }
        let entry = match &self.image {
            Image::Opaque => Entry {
                name: name.to_owned(),
                parameters: None,
                shared: 0,
            },
            Image::Known { entries, .. } => {
                let found = entries.iter().find(|entry| entry.name == name);
                found.cloned().ok_or(CUDA_ERROR_NOT_FOUND)?
            }
        };
        let function = Arc::new(Function {
            handle: fresh(),
            name: std::ffi::CString::new(name).map_err(|_| CUDA_ERROR_NOT_FOUND)?,
            entry,
            module: self.handle,
            context: self.context,
            attributes: Mutex::default(),
            legacy: Mutex::default(),
            cache: AtomicI32::new(0),
        });
        FUNCTIONS.insert(function.handle, Arc::clone(&function));
        lock(&self.functions).insert(name.to_owned(), Arc::clone(&function));
        Ok(function)
    }

    /// Returns all functions of the image, in order.
    fn all(&self) -> Result<Vec<Arc<Function>>, CUerror> {
        match &self.image {
            Image::Opaque => Ok(lock(&self.functions).values().cloned().collect()),
            Image::Known { entries, .. } => entries
                .iter()
                .map(|entry| self.function(&entry.name))
                .collect(),
        }
    }

    /// Returns the address and the bytes of a variable in the current context.
    fn global(&self, name: &str) -> Result<(u64, usize), CUerror> {
        let context = current()?;
        let Image::Known { variables, .. } = &self.image else {
            return Err(CUDA_ERROR_NOT_FOUND);
        };
        let found = variables.iter().find(|known| known.name == name);
        let variable = found.ok_or(CUDA_ERROR_NOT_FOUND)?;
        let bytes = variable.size;
        let key = (context.owner, name.to_owned());
        let mut globals = lock(&self.globals);
        if let Some(global) = globals.get(&key) {
            return Ok(*global);
        }
        let block = heap::allocate(
            bytes as u64,
            heap::STEP,
            context.device,
            context.owner,
            Kind::Array,
        )?;
        crate::c::fill(block.base, 0u8, bytes);
        let initial = &variable.initial;
        crate::c::copy_bytes(block.base, initial.as_ptr() as u64, initial.len());
        globals.insert(key, (block.base, bytes));
        // Two may have each other's.
        drop(globals);
        for one in &variable.addresses {
            let Ok((address, _)) = self.global(&one.name) else {
                continue;
            };
            let word = address.wrapping_add_signed(one.addend).to_le_bytes();
            let place = block.base + one.offset as u64;
            crate::c::copy_bytes(place, word.as_ptr() as u64, one.bytes);
        }
        Ok((block.base, bytes))
    }

    fn unload(&self) {
        let mut code = HashSet::from([self.handle]);
        for function in lock(&self.functions).values() {
            FUNCTIONS.remove(function.handle);
            code.insert(function.handle);
        }
        context::unload_code(&code);
        for (address, _) in lock(&self.globals).values() {
            // A context that ended took it along.
            let _ = heap::free(*address, Kind::Array);
        }
        for module in lock(&self.modules).values() {
            MODULES.remove(*module);
        }
    }
}

impl Function {
    /// Returns the most dynamic shared memory that a launch may request, in bytes.
    pub fn dynamic_limit(&self) -> u32 {
        const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;
        attribute(self, MAX_DYNAMIC_SHARED_SIZE_BYTES).unwrap_or(0) as u32
    }
}

/// Returns an attribute of a function: the value that was set, or that of every simulated kernel.
fn attribute(function: &Function, attribute: u32) -> Result<i32, CUerror> {
    if let Some(value) = lock(&function.attributes).get(&attribute) {
        return Ok(*value);
    }
    match attribute {
        0 => Ok(1024),
        1 => Ok(function.entry.shared as i32),
        2 | 3 => Ok(0),
        4 => Ok(32),
        5 | 6 => Ok(90),
        7 => Ok(0),
        8 => Ok((SHARED_UNASKED.saturating_sub(function.entry.shared)) as i32),
        9 => Ok(-1),
        10..=15 => Ok(0),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
