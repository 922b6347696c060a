//! A node agent alone, for development against any API server, and small programs to run in its containers.
//!
//! `agent run NAME KUBECONFIG ROOT [loopback] [simulate] [bootstrap] [cidr=10.244.7.0/24]` runs the agent; containers of
//! image `atoll` run this same program, whose other words are `say TEXT…`, `wait`, `serve PORT`, `env`, `cat PATH`,
//! `fail CODE`, `hog MIB` and `id`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;

use atoll_node::{Credentials, NetworkMode, NodeOptions};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = atoll_node::hidden_main(&args) {
        std::process::exit(code);
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let code = match words.as_slice() {
        ["run", name, kubeconfig, root, flags @ ..] => agent(name, kubeconfig, root, flags),
        ["say", text @ ..] => print(&text.join(" ")),
        ["env"] => print(&std::env::vars().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("\n")),
        ["cat", path] => std::fs::read_to_string(path).map_or_else(|e| print(&e.to_string()) + 1, |t| print(&t)),
        ["ls", path] => list(path),
        ["fail", code] => code.parse().unwrap_or(1),
        ["id"] => print(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()),
        ["wait"] => wait(),
        ["serve", port] => serve(port),
        ["hog", mib] => hog(mib.parse().unwrap_or(64)),
        ["echo"] => echo(),
        ["worker", name, root, first, record] => worker(name, root, first.parse().unwrap_or(300_000), record),
        _ => print("see the example's first lines") + 2,
    };
    std::process::exit(code);
}

fn print(text: &str) -> i32 {
    println!("{text}");
    0
}

fn list(path: &str) -> i32 {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        println!("{}", entry.path().display());
    }
    0
}

fn echo() -> i32 {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = std::io::stdin().read(&mut buffer) {
        let _ = std::io::stdout().write_all(&buffer[..n]);
        let _ = std::io::stdout().flush();
    }
    0
}

/// Waits for SIGTERM.
fn wait() -> i32 {
    let mut signals = nix::sys::signal::SigSet::empty();
    signals.add(nix::sys::signal::Signal::SIGTERM);
    signals.thread_block().expect("signals can be blocked");
    println!("waiting as process {}", std::process::id());
    let signal = signals.wait().expect("a signal can be waited for");
    println!("ended by {signal}");
    0
}

/// Answers every connection with an HTTP 200, on the Pod's own address.
fn serve(port: &str) -> i32 {
    let host = std::env::var("POD_IP").unwrap_or_else(|_| "0.0.0.0".to_owned());
    let listener = std::net::TcpListener::bind(format!("{host}:{port}")).expect("the port is free");
    for stream in listener.incoming().flatten() {
        let mut stream = stream;
        let _ = stream.read(&mut [0; 2048]);
        let body = format!("hello from {}\n", std::env::var("HOSTNAME").unwrap_or_default());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        let _ = stream.write_all((head + &body).as_bytes());
    }
    0
}

/// Makes a worker.
fn worker(name: &str, root: &str, first: u32, record: &str) -> i32 {
    let program = std::env::current_exe().expect("this program has a path");
    let spec = atoll_node::worker::WorkerSpec::new(name, PathBuf::from(root), first, program);
    match atoll_node::worker::spawn(&spec, &PathBuf::from(record)) {
        Ok(worker) => print(&worker.init.pid.to_string()),
        Err(e) => print(&e.to_string()) + 1,
    }
}

/// Takes memory and touches it.
fn hog(mib: usize) -> i32 {
    let mut held = Vec::new();
    for i in 0..mib {
        held.push(vec![1_u8; 1 << 20]);
        println!("{} MiB", i + 1);
    }
    wait()
}

fn agent(name: &str, kubeconfig: &str, root: &str, flags: &[&str]) -> i32 {
    rustls::crypto::aws_lc_rs::default_provider().install_default().expect("no provider is installed yet");
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let has = |flag: &str| flags.contains(&flag);
    let path = PathBuf::from(kubeconfig);
    let credentials = if has("bootstrap") { Credentials::Bootstrap(path) } else { Credentials::Kubeconfig(path) };
    let program = std::env::current_exe().expect("this program has a path");
    let mut options = NodeOptions::new(name, credentials, PathBuf::from(root), program, "atoll");
    options.simulate = has("simulate");
    options.network = has("loopback").then_some(NetworkMode::Loopback);
    options.labels = BTreeMap::new();
    options.port = 0;
    for flag in flags {
        if let Some(cidr) = flag.strip_prefix("cidr=") {
            options.pod_cidr = Some(cidr.parse().expect("a range"));
        }
        if let Some(ip) = flag.strip_prefix("ip=") {
            options.node_ip = Some(ip.parse().expect("an address"));
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let shutdown = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    match runtime.block_on(atoll_node::run(options, shutdown)) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("{e}");
            1
        }
    }
}
