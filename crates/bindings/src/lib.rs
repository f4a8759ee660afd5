//! The Python extension module `weft._weft`: converts arguments, releases the GIL, maps errors. No logic.
