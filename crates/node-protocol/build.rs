//! Compiles the two `.proto` files in Rust alone, so that a build needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["deviceplugin.proto", "podresources.proto"];
    for file in files {
        println!("cargo:rerun-if-changed=proto/{file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
