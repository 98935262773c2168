//! The manifests for Kubernetes: valid by its schemas, and in agreement with the programs.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::skip;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/kubernetes")
}

fn manifests() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut all: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "yaml"));
    all.sort();
    assert!(all.len() >= 2, "{all:?}");
    all
}

/// Returns the documents of a manifest; `None` without a parser for YAML.
fn documents(file: &Path) -> Option<Vec<Value>> {
    const SCRIPT: &str = "import json, sys, yaml\n\
                          print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let out = Command::new("python3").args(["-c", SCRIPT]).arg(file).output().ok()?;
    let err = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() && err.contains("No module named") {
        return None;
    }
    assert!(out.status.success(), "{}: {err}", file.display());
    Some(serde_json::from_slice(&out.stdout).unwrap())
}

/// Returns the program that knows the schemas of Kubernetes: the one that `cargo xtask test`
/// installs, or one on PATH.
fn validator() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/kubernetes/bin/kubernetes-validate");
    if own.is_file() {
        own
    } else {
        PathBuf::from("kubernetes-validate")
    }
}

#[test]
fn manifests__are_valid_by_the_schemas_of_kubernetes() {
    let mut command = Command::new(validator());
    let Ok(out) = command.arg("--strict").args(manifests()).output() else {
        return skip("kubernetes-validate is not installed (pip install kubernetes-validate)");
    };
    let text = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&text));
}

/// Calls `each` for every object in a value.
fn visit(value: &Value, each: &mut dyn FnMut(&Value)) {
    each(value);
    match value {
        Value::Array(all) => all.iter().for_each(|v| visit(v, each)),
        Value::Object(all) => all.values().for_each(|v| visit(v, each)),
        _ => {}
    }
}

#[test]
fn manifests__mount_the_agents_folder_and_give_no_rights_away() {
    for file in manifests() {
        let Some(documents) = documents(&file) else {
            return skip("python3 has no module yaml (python3-yaml)");
        };
        let (mut containers, mut mounts) = (0, 0);
        for document in &documents {
            assert!(document["kind"].is_string() && document["apiVersion"].is_string());
            visit(document, &mut |value| {
                let Some(list) = value["containers"].as_array() else { return };
                for container in list {
                    containers += 1;
                    let rights = &container["securityContext"];
                    assert_eq!(rights["allowPrivilegeEscalation"], false, "{container}");
                    assert_eq!(rights["capabilities"]["drop"][0], "ALL", "{container}");
                    assert!(rights["privileged"].is_null(), "{container}");
                    let image = container["image"].as_str().unwrap();
                    assert!(!image.contains('/'), "{image} names a registry");
                }
                let volumes = value["volumes"].as_array().unwrap();
                mounts += volumes.iter().filter(|v| v["hostPath"]["path"] == "/run/weft").count();
                for word in ["hostIPC", "hostPID"] {
                    assert!(value[word].is_null(), "{word}");
                }
            });
        }
        assert!(containers > 0 && mounts > 0, "{}", file.display());
    }
}

#[test]
fn manifests__start_the_agent_with_options_that_it_has() {
    for file in ["weftd.yaml", "weftd-cluster.yaml"] {
        let Some(documents) = documents(&folder().join(file)) else {
            return skip("python3 has no module yaml (python3-yaml)");
        };
        let kind = |of: &str| documents.iter().find(|d| d["kind"] == of);
        let agents = kind("DaemonSet").unwrap();
        let container = &agents["spec"]["template"]["spec"]["containers"][0];
        let words = container["command"].as_array().unwrap();
        // The host's address is put in by Kubernetes.
        let words =
            words.iter().map(|word| word.as_str().unwrap().replace("$(HOST_IP)", "10.0.0.1"));
        let words: Vec<String> = words.collect();
        assert_eq!(words[0], "weftd");
        let options = weftd::options::Options::parse(words[1..].iter()).unwrap();
        assert_eq!(options.name, "/run/weft/agent.sock");
        if let Some(service) = kind("Service") {
            assert_eq!(service["spec"]["clusterIP"], "None", "its name has all addresses");
            assert_eq!(service["spec"]["selector"], agents["spec"]["selector"]["matchLabels"]);
            let port = options.cluster.port;
            assert_eq!(service["spec"]["ports"][0]["port"], port);
            let name = service["metadata"]["name"].as_str().unwrap();
            let place = format!("Host({name:?}, {port})");
            assert_eq!(format!("{:?}", options.cluster.join), format!("[{place}]"));
        }
    }
    for other in ["any", "off", "same", "100000-165535"] {
        assert!(weftd::options::Options::parse(["--share", other]).is_ok());
    }
}
