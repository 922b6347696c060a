//! Compiles the protocol in Rust alone, so that a build needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/konnectivity.proto");
    let descriptors = protox::compile(["konnectivity.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
