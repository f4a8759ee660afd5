//! The fuzz target of the binary's name, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weft_fuzz::run(env!("CARGO_BIN_NAME"), bytes));
