//! Reader of DLPack capsules of both versions of the protocol.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::slice;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

const UNVERSIONED: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const FLAG_READ_ONLY: u64 = 1;
/// The newest supported major version; later ones may have another layout.
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

/// `DLTensor`, which is also the beginning of `DLManagedTensor`.
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

/// The beginning of `DLManagedTensorVersioned`, as far as it is read here.
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

/// The tensor in a DLPack capsule, whose memory this keeps alive.
///
/// The capsule is held, not consumed: its own destructor notifies the producer when it is dropped.
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

    /// The strides, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.strides)
    }

    /// Whether the memory must not be written. Also true if the producer cannot say so: the first
    /// version of DLPack has no such flag, and some producers export immutable arrays with it
    /// (JAX).
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

/// The tensor in a capsule, and whether it is read-only. As for NumPy, it is unless the capsule
/// says otherwise.
fn read(capsule: &Bound<'_, PyCapsule>) -> PyResult<(Tensor, bool)> {
    if capsule.is_valid_checked(Some(VERSIONED)) {
        let pointer: NonNull<VersionedTensor> = capsule.pointer_checked(Some(VERSIONED))?.cast();
        let major: NonNull<u32> = pointer.cast();
        // SAFETY: every version of the structure begins with its major version.
        let major = unsafe { major.read() };
        if major > MAJOR_MAX {
            let text = format!(
                "DLPack version {major} is not supported; the newest supported version is {MAJOR_MAX}"
            );
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
    // SAFETY: DLPack requires that `shape` and `strides`, if not null, have one number per
    // dimension.
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
/// If the address is not null, `len` numbers are there.
unsafe fn list(first: *const i64, len: usize) -> Vec<i64> {
    if first.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: as this function requires.
    unsafe { slice::from_raw_parts(first, len) }.to_vec()
}

/// The strides of a contiguous tensor, which the first version of DLPack may omit.
fn contiguous(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}
