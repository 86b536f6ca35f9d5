//! The calls on modules, libraries and kernels.

use gpushare_sim::scenario::Swap;

use crate::{
    code::{
        jit::{Logs, Options},
        module::*,
    },
    driver::mishap,
    faces::faces,
};

faces! {
    "cuModuleLoad" 2000 cuModuleLoad (out: Out<CUmodule>, path: Text) {
        current()?;
        from_file(path, |image| load_module(out, image, Logs::default()))
    }
    "cuModuleLoadData" 2000 cuModuleLoadData (out: Out<CUmodule>, image: u64) { load_module(out, image, Logs::default()) }
    "cuModuleLoadDataEx" 2010 cuModuleLoadDataEx (out: Out<CUmodule>, image: u64, count: u32, options: In<u32>, values: In<*mut c_void>) {
        load_module(out, image, Logs::of(Options { count, keys: options, values })?)
    }
    "cuModuleLoadFatBinary" 2000 cuModuleLoadFatBinary (out: Out<CUmodule>, image: u64) { load_module(out, image, Logs::default()) }
    "cuModuleUnload" 2000 cuModuleUnload (handle: CUmodule) {
        let module = module(handle as u64)?;
        if let Ok(context) = context::by_handle(module.context as _) {
            context.synchronize();
        }
        MODULES.remove(module.handle);
        module.unload();
        Ok(())
    }
    "cuModuleGetLoadingMode" 11070 cuModuleGetLoadingMode (out: Out<u32>) { out.set(2) }
    "cuModuleGetFunction" 2000 cuModuleGetFunction (out: Out<CUfunction>, handle: CUmodule, name: Text) {
        let module = module(handle as u64)?;
        out.check()?;
        out.set(module.function(&name.get()?)?.handle as CUfunction)
    }
    "cuModuleGetFunctionCount" 12040 cuModuleGetFunctionCount (out: Out<u32>, handle: CUmodule) {
        out.set(module(handle as u64)?.all()?.len() as u32)
    }
    "cuModuleEnumerateFunctions" 12040 cuModuleEnumerateFunctions (out: Out<CUfunction>, count: u32, handle: CUmodule) {
        for (index, function) in module(handle as u64)?.all()?.iter().take(count as usize).enumerate() {
            out.set_at(index, function.handle as CUfunction)?;
        }
        Ok(())
    }
    "cuModuleGetGlobal" 3020 cuModuleGetGlobal_v2 (address: Out<CUdeviceptr>, bytes: Out<usize>, handle: CUmodule, name: Text) {
        let global = module(handle as u64)?.global(&name.get()?)?;
        address.set_if_wanted(global.0);
        bytes.set_if_wanted(global.1);
        Ok(())
    }
    "cuLibraryLoadData" 12000 cuLibraryLoadData (out: Out<CUlibrary>, image: u64, jit: In<u32>, jit_values: In<*mut c_void>, jit_count: u32, options: In<u32>, values: In<*mut c_void>, count: u32) {
        let _ = (options, values, count);
        load_library(out, image, Logs::of(Options { count: jit_count, keys: jit, values: jit_values })?)
    }
    "cuLibraryLoadFromFile" 12000 cuLibraryLoadFromFile (out: Out<CUlibrary>, path: Text, jit: In<u32>, jit_values: In<*mut c_void>, jit_count: u32, options: In<u32>, values: In<*mut c_void>, count: u32) {
        let _ = (options, values, count);
        driver()?;
        let logs = Logs::of(Options { count: jit_count, keys: jit, values: jit_values })?;
        from_file(path, |image| load_library(out, image, logs))
    }
    "cuLibraryUnload" 12000 cuLibraryUnload (library: CUlibrary) {
        let library = module(library as u64)?;
        MODULES.remove(library.handle);
        library.unload();
        Ok(())
    }
    "cuLibraryGetKernel" 12000 cuLibraryGetKernel (out: Out<CUkernel>, library: CUlibrary, name: Text) {
        let library = module(library as u64)?;
        out.check()?;
        out.set(library.function(&name.get()?)?.handle as CUkernel)
    }
    "cuLibraryGetKernelCount" 12040 cuLibraryGetKernelCount (out: Out<u32>, library: CUlibrary) {
        out.set(module(library as u64)?.all()?.len() as u32)
    }
    "cuLibraryEnumerateKernels" 12040 cuLibraryEnumerateKernels (out: Out<CUkernel>, count: u32, library: CUlibrary) {
        for (index, function) in module(library as u64)?.all()?.iter().take(count as usize).enumerate() {
            out.set_at(index, function.handle as CUkernel)?;
        }
        Ok(())
    }
    "cuLibraryGetModule" 12000 cuLibraryGetModule (out: Out<CUmodule>, library: CUlibrary) {
        let library = module(library as u64)?;
        let context = current()?;
        out.check()?;
        let mut modules = lock(&library.modules);
        let handle = match modules.get(&context.owner) {
            Some(handle) => *handle,
            None => Module::load_here(library.image.clone())?.handle,
        };
        modules.insert(context.owner, handle);
        out.set(handle as CUmodule)
    }
    "cuLibraryGetGlobal" 12000 cuLibraryGetGlobal (address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text) {
        let global = module(library as u64)?.global(&name.get()?)?;
        address.set_if_wanted(global.0);
        bytes.set_if_wanted(global.1);
        Ok(())
    }
    "cuLibraryGetManaged" 12000 cuLibraryGetManaged (address: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text) {
        let _ = (address, bytes, name);
        module(library as u64)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
    "cuLibraryGetUnifiedFunction" 12000 cuLibraryGetUnifiedFunction (out: Out<*mut c_void>, library: CUlibrary, name: Text) {
        let _ = (out, name);
        module(library as u64)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
    "cuKernelGetFunction" 12000 cuKernelGetFunction (out: Out<CUfunction>, handle: CUkernel) {
        current()?;
        out.set(kernel(handle)?.handle as CUfunction)
    }
    "cuKernelGetLibrary" 12050 cuKernelGetLibrary (out: Out<CUlibrary>, handle: CUkernel) {
        out.set(kernel(handle)?.module as CUlibrary)
    }
    "cuKernelGetAttribute" 12000 cuKernelGetAttribute (out: Out<i32>, which: u32, handle: CUkernel, device: CUdevice) {
        driver()?.device(device)?;
        out.set(attribute(&*kernel(handle)?, which)?)
    }
    "cuKernelSetAttribute" 12000 cuKernelSetAttribute (which: u32, value: i32, handle: CUkernel, device: CUdevice) {
        driver()?.device(device)?;
        set_attribute(&*kernel(handle)?, which, value)
    }
    "cuKernelSetCacheConfig" 12000 cuKernelSetCacheConfig (handle: CUkernel, config: i32, device: CUdevice) {
        driver()?.device(device)?;
        kernel(handle)?.cache.store(config, Relaxed);
        Ok(())
    }
    "cuKernelGetName" 12030 cuKernelGetName (out: Out<*const c_char>, handle: CUkernel) {
        name_of(out, handle.cast())
    }
    "cuKernelGetParamInfo" 12040 cuKernelGetParamInfo (handle: CUkernel, index: usize, offset: Out<usize>, bytes: Out<usize>) {
        current()?;
        parameter(&*kernel(handle)?, index, offset, bytes)
    }
    "cuFuncGetAttribute" 2020 cuFuncGetAttribute (out: Out<i32>, which: u32, handle: CUfunction) {
        let function = function(handle)?;
        if let Ok(context) = current() {
            context.load_code(function.handle)?;
        }
        out.set(attribute(&function, which)?)
    }
    "cuFuncSetAttribute" 9000 cuFuncSetAttribute (handle: CUfunction, which: u32, value: i32) {
        set_attribute(&*function(handle)?, which, value)
    }
    "cuFuncSetCacheConfig" 3000 cuFuncSetCacheConfig (handle: CUfunction, config: i32) {
        function(handle)?.cache.store(config, Relaxed);
        Ok(())
    }
    "cuFuncSetSharedMemConfig" 4020 cuFuncSetSharedMemConfig (handle: CUfunction, config: i32) {
        let _ = config;
        function(handle).map(|_| ())
    }
    "cuFuncGetModule" 11000 cuFuncGetModule (out: Out<CUmodule>, handle: CUfunction) {
        let function = function(handle)?;
        if function.context == 0 {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        out.set(function.module as CUmodule)
    }
    "cuFuncGetName" 12030 cuFuncGetName (out: Out<*const c_char>, handle: CUfunction) {
        name_of(out, handle)
    }
    "cuFuncGetParamInfo" 12040 cuFuncGetParamInfo (handle: CUfunction, index: usize, offset: Out<usize>, bytes: Out<usize>) {
        parameter(&*function(handle)?, index, offset, bytes)
    }
    "cuFuncIsLoaded" 12040 cuFuncIsLoaded (out: Out<u32>, handle: CUfunction) {
        function(handle)?;
        out.set(1)
    }
    "cuFuncLoad" 12040 cuFuncLoad (handle: CUfunction) { current()?.load_code(function(handle)?.handle) }
}

/// Writes the name of a function. NULL is an invalid value; any other wrong handle is an invalid handle.
fn name_of(out: Out<*const c_char>, handle: CUfunction) -> CUresult {
    if handle.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    out.set(function(handle)?.name.as_ptr())
}

/// Reads the image at an address, and writes the logs.
fn read(image: u64, logs: Logs) -> Result<Image, CUerror> {
    if image == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let Some(image) = Image::at(image) else {
        logs.refused();
        return Err(CUDA_ERROR_INVALID_IMAGE);
    };
    logs.took(&image);
    Ok(image)
}

fn load_module(out: Out<CUmodule>, image: u64, logs: Logs) -> CUresult {
    current()?;
    out.check()?;
    capture::forbid_unsafe()?;
    mishap(Swap::Hash)?;
    let image = read(image, logs)?;
    out.set(Module::load_here(image)?.handle as CUmodule)
}

fn from_file<T>(path: Text, with: impl FnOnce(u64) -> Result<T, CUerror>) -> Result<T, CUerror> {
    let mut bytes = std::fs::read(path.get()?).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    bytes.extend([0; 8]);
    with(bytes.as_ptr() as u64)
}

fn load_library(out: Out<CUlibrary>, image: u64, logs: Logs) -> CUresult {
    driver()?;
    out.check()?;
    let image = read(image, logs)?;
    out.set(Module::load(image, 0).handle as CUlibrary)
}

fn set_attribute(function: &Function, attribute: u32, value: i32) -> CUresult {
    if !matches!(attribute, 8..=15) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let most = SHARED_LIMIT.saturating_sub(function.entry.shared) as i32;
    if attribute == 8 && !(0..=most).contains(&value) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    lock(&function.attributes).insert(attribute, value);
    Ok(())
}

fn parameter(function: &Function, index: usize, offset: Out<usize>, bytes: Out<usize>) -> CUresult {
    let known = function.entry.parameters.as_ref();
    let parameter = known.and_then(|all| all.get(index));
    let parameter = parameter.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    offset.set(parameter.offset)?;
    bytes.set_if_wanted(parameter.size);
    Ok(())
}
