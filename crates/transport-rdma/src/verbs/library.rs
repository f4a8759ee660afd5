//! The library of RDMA verbs, libibverbs, loaded on first use: weft builds and runs without it. The
//! inline functions of its header call through the table of a device's context, as is done here.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use weft_transport::PerProcess;

use super::structures::{
    CompletionChannel, Context, Device, DeviceAttributes, MemoryRegion, PortAttributes,
    ProtectionDomain, QueuePairAttributes, QueuePairInit, RawCompletionQueue, RawQueuePair,
};

/// `ibv_reg_dmabuf_mr`: offset and length in the file, the address in work requests, access.
type RegisterDmaBuf =
    unsafe extern "C" fn(*mut ProtectionDomain, u64, usize, u64, c_int, c_int) -> *mut MemoryRegion;

/// Declares the table of functions, and how it is filled.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        #[allow(non_snake_case)]
        pub(crate) struct Verbs {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Since version 34 of the library.
            pub(crate) ibv_reg_dmabuf_mr: Option<RegisterDmaBuf>,
        }

        impl Verbs {
            fn of(library: *mut c_void) -> Result<Verbs, String> {
                Ok(Verbs {
                    $($name: {
                        let name = stringify!($name);
                        let missing = || format!("libibverbs does not export {name}");
                        let found = symbol(library, name).ok_or_else(missing)?;
                        // SAFETY: the symbol is a function, of the type that the header declares.
                        unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                    },)*
                    ibv_reg_dmabuf_mr: symbol(library, "ibv_reg_dmabuf_mr").map(|found| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<NonNull<c_void>, RegisterDmaBuf>(found) }
                    }),
                })
            }
        }
    };
}

functions! {
    ibv_fork_init() -> c_int;
    ibv_get_device_list(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list(*mut *mut Device);
    ibv_get_device_name(*mut Device) -> *const c_char;
    ibv_open_device(*mut Device) -> *mut Context;
    ibv_close_device(*mut Context) -> c_int;
    ibv_query_device(*mut Context, *mut DeviceAttributes) -> c_int;
    ibv_query_port(*mut Context, u8, *mut PortAttributes) -> c_int;
    ibv_alloc_pd(*mut Context) -> *mut ProtectionDomain;
    ibv_dealloc_pd(*mut ProtectionDomain) -> c_int;
    ibv_reg_mr(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    ibv_dereg_mr(*mut MemoryRegion) -> c_int;
    ibv_create_comp_channel(*mut Context) -> *mut CompletionChannel;
    ibv_destroy_comp_channel(*mut CompletionChannel) -> c_int;
    ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut RawCompletionQueue;
    ibv_destroy_cq(*mut RawCompletionQueue) -> c_int;
    ibv_get_cq_event(*mut CompletionChannel, *mut *mut RawCompletionQueue, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut RawCompletionQueue, c_uint);
    ibv_create_qp(*mut ProtectionDomain, *mut QueuePairInit) -> *mut RawQueuePair;
    ibv_modify_qp(*mut RawQueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    ibv_destroy_qp(*mut RawQueuePair) -> c_int;
    ibv_wc_status_str(c_int) -> *const c_char;
}

impl Verbs {
    /// The library, or the reason that there is none.
    pub(crate) fn get() -> Result<&'static Verbs, &'static str> {
        // A child that is forked while a thread loads it would wait for that thread.
        static LOADED: PerProcess<OnceLock<Result<Verbs, String>>> = PerProcess::new(OnceLock::new);
        LOADED
            .get()
            .get_or_init(Verbs::load)
            .as_ref()
            .map_err(String::as_str)
    }

    fn load() -> Result<Verbs, String> {
        // SAFETY: the name ends with a NUL; loading the library runs its initializers, as in any
        // program that links to it.
        let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            // SAFETY: it returns null or a NUL-terminated string that this thread may read.
            let why = unsafe { libc::dlerror() };
            let why = match why.is_null() {
                true => "libibverbs.so.1 cannot be loaded".into(),
                // SAFETY: as above.
                false => text(unsafe { CStr::from_ptr(why) }),
            };
            return Err(format!(
                "{why} (install libibverbs1 and ibverbs-providers, or rdma-core)"
            ));
        }
        let verbs = Verbs::of(library)?;
        if !forks_copy(library) {
            // So that registered private memory keeps its pages when the process forks: the child
            // does not inherit them. An error means that memory is registered already.
            // SAFETY: plain call.
            unsafe { (verbs.ibv_fork_init)() };
        }
        Ok(verbs)
    }

    /// A completion status, in words.
    pub(crate) fn status(&self, status: c_int) -> String {
        // SAFETY: it returns a static string for any number.
        let name = unsafe { (self.ibv_wc_status_str)(status) };
        // SAFETY: as above.
        text(unsafe { CStr::from_ptr(name) })
    }
}

/// A function of the library, if it exports one of this name.
fn symbol(library: *mut c_void, name: &str) -> Option<NonNull<c_void>> {
    let name = CString::new(name).ok()?;
    // SAFETY: the library is open, and the name ends with a NUL.
    NonNull::new(unsafe { libc::dlsym(library, name.as_ptr()) })
}

/// Whether the kernel copies registered memory for a forked child, as kernels since 5.12 do. The
/// query exists in the library since version 35, which even then keeps whole pages out of the
/// child, with all other data in them, once `ibv_fork_init` was called.
fn forks_copy(library: *mut c_void) -> bool {
    /// `IBV_FORK_UNNEEDED`.
    const UNNEEDED: c_int = 2;
    let Some(found) = symbol(library, "ibv_is_fork_initialized") else {
        return false;
    };
    // SAFETY: the symbol is a function, of the type that the header declares.
    let state =
        unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> c_int>(found) };
    // SAFETY: plain call.
    unsafe { state() == UNNEEDED }
}

pub(crate) fn text(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}
