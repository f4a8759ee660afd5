//! Reader of DLPack capsules, of the first version of the protocol and of the second.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::slice;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

const UNVERSIONED: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const FLAG_READ_ONLY: u64 = 1;
/// Newer major versions may lay the structure out differently.
const MAJOR_MAX: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`; also how `DLManagedTensor` begins.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned`, up to what is read here.
#[repr(C)]
#[derive(Clone, Copy)]
struct VersionedTensor {
    major: u32,
    minor: u32,
    manager_context: *mut c_void,
    deleter: *const c_void,
    flags: u64,
    tensor: Tensor,
}

/// What a DLPack capsule says; keeps the memory alive.
///
/// The capsule is held, not consumed: its own destructor tells the producer when it is dropped.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct DlpackTensor {
    pointer: usize,
    dtype: (u8, u8, u16),
    device_type: i32,
    read_only: bool,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _capsule: Py<PyCapsule>,
}

#[pymethods]
impl DlpackTensor {
    #[new]
    fn new(capsule: Bound<'_, PyCapsule>) -> PyResult<Self> {
        let (tensor, read_only) = read(&capsule)?;
        let (shape, strides) = layout(&tensor)?;
        Ok(Self {
            pointer: tensor.data as usize + tensor.byte_offset as usize,
            dtype: (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes),
            device_type: tensor.device.device_type,
            read_only,
            shape,
            strides,
            _capsule: capsule.unbind(),
        })
    }

    /// The address of the first element.
    #[getter]
    fn pointer(&self) -> usize {
        self.pointer
    }

    /// DLPack's type code, bits and lanes.
    #[getter]
    fn dtype(&self) -> (u8, u8, u16) {
        self.dtype
    }

    /// The lengths of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// In elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.strides)
    }

    /// Whether the memory must not be written, or the producer does not say that it may be: the
    /// first version of DLPack cannot, and arrays that never change are given away by it (JAX).
    #[getter]
    fn read_only(&self) -> bool {
        self.read_only
    }

    /// DLPack's number for the device; 1 is the CPU.
    #[getter]
    fn device_type(&self) -> i32 {
        self.device_type
    }
}

/// The tensor in a capsule, and whether it is read-only, as it is for NumPy too unless the capsule
/// says otherwise.
fn read(capsule: &Bound<'_, PyCapsule>) -> PyResult<(Tensor, bool)> {
    if capsule.is_valid_checked(Some(VERSIONED)) {
        let pointer: NonNull<VersionedTensor> = capsule.pointer_checked(Some(VERSIONED))?.cast();
        let major: NonNull<u32> = pointer.cast();
        // SAFETY: every version of the structure begins with its major version.
        let major = unsafe { major.read() };
        if major > MAJOR_MAX {
            let text =
                format!("DLPack version {major} is not known; the newest known is {MAJOR_MAX}");
            return Err(PyBufferError::new_err(text));
        }
        // SAFETY: a capsule of this name, not consumed yet, holds such a structure of a major
        // version checked above.
        let versioned = unsafe { pointer.read() };
        return Ok((versioned.tensor, versioned.flags & FLAG_READ_ONLY != 0));
    }
    let pointer: NonNull<Tensor> = capsule.pointer_checked(Some(UNVERSIONED))?.cast();
    // SAFETY: a capsule of this name, not consumed yet, holds a `DLManagedTensor`, which begins
    // with the tensor.
    let tensor = unsafe { pointer.read() };
    Ok((tensor, true))
}

/// The lengths and strides of a tensor's dimensions.
fn layout(tensor: &Tensor) -> PyResult<(Vec<i64>, Vec<i64>)> {
    let dimensions = usize::try_from(tensor.dimensions)
        .map_err(|_| PyBufferError::new_err("a DLPack tensor with fewer than 0 dimensions"))?;
    // SAFETY: DLPack says that `shape` and `strides`, if not null, have one number per dimension.
    let shape = unsafe { list(tensor.shape, dimensions) };
    if dimensions > 0 && shape.is_empty() {
        return Err(PyBufferError::new_err("a DLPack tensor without a shape"));
    }
    // SAFETY: as above.
    let strides = unsafe { list(tensor.strides, dimensions) };
    if strides.is_empty() {
        let strides = contiguous(&shape);
        return Ok((shape, strides));
    }
    Ok((shape, strides))
}

/// # Safety
/// If the address is not null, as many numbers lie there.
unsafe fn list(first: *const i64, len: usize) -> Vec<i64> {
    if first.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(first, len) }.to_vec()
}

/// The strides of a contiguous tensor, which the first version of DLPack allows to leave out.
fn contiguous(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}
