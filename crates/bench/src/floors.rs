//! Memory floors: the times of copying and adding without communication.

use weft_kernels::{DType, Finish, ReduceOp};

use crate::TimedOperation;

/// Copies bytes of this process.
pub struct Copy {
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
}

// SAFETY: the pointers are plain addresses; `Copy::new` states the requirements on the memory.
unsafe impl Send for Copy {}

impl Copy {
    /// A copy.
    ///
    /// # Safety
    ///
    /// As long as this is called, both ranges are valid, do not overlap, and nothing else uses
    /// them.
    pub unsafe fn new(dst: *mut u8, src: *const u8, bytes: usize) -> Self {
        Self { dst, src, bytes }
    }
}

impl TimedOperation for Copy {
    fn call(&mut self) -> Result<(), String> {
        // SAFETY: as `new` requires.
        unsafe { weft_kernels::copy(&[self.dst], self.src, self.bytes) };
        Ok(())
    }
}

/// Adds vectors of this process, and writes the sum to each of them, by weft's kernel.
pub struct Add {
    vectors: Vec<*mut u8>,
    sources: Vec<*const u8>,
    dtype: DType,
    elements: usize,
}

// SAFETY: the pointers are plain addresses; `Add::new` states the requirements on the memory.
unsafe impl Send for Add {}

impl Add {
    /// An addition.
    ///
    /// # Safety
    ///
    /// As long as this is called, the vectors are valid, do not overlap, and nothing else uses
    /// them.
    pub unsafe fn new(vectors: Vec<*mut u8>, dtype: DType, elements: usize) -> Self {
        let sources = vectors.iter().map(|vector| vector.cast_const()).collect();
        Self {
            vectors,
            sources,
            dtype,
            elements,
        }
    }
}

impl TimedOperation for Add {
    fn call(&mut self) -> Result<(), String> {
        // SAFETY: as `new` requires.
        unsafe {
            weft_kernels::reduce(
                self.dtype,
                ReduceOp::Sum,
                &self.vectors,
                &self.sources,
                self.elements,
                Finish::Keep,
            );
        };
        Ok(())
    }
}
