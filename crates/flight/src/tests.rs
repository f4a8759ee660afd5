//! Tests of the recorder: the content of files, the occasions of writing, and removal.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;

const OP_NAMES: [&str; 2] = ["sum", "avg"];

/// A directory that is removed on drop.
pub(super) struct Directory(pub(super) PathBuf);

impl Directory {
    pub(super) fn new() -> Self {
        let unique = u64::from_ne_bytes(weft_transport::random().unwrap());
        Directory(std::env::temp_dir().join(format!("weft-flight-test-{unique:x}")))
    }

    /// The content of the file of a job's rank.
    fn read(&self, job: u64, rank: u32) -> Option<Value> {
        let own = fs::read_dir(&self.0).ok()?.next()?.ok()?.path();
        let file = own.join(format!("job-{job:016x}/rank{rank}.json"));
        Some(serde_json::from_str(&fs::read_to_string(file).ok()?).unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn recorder(base: Option<PathBuf>) -> Arc<FlightRecorder> {
    let process = ProcessInfo {
        host_name: "host".into(),
        boot_id: "boot".into(),
        pid: 7,
        op_names: &OP_NAMES,
    };
    FlightRecorder::new(process, base)
}

fn group(recorder: &Arc<FlightRecorder>, id: u64) -> GroupFlight {
    let info = GroupInfo {
        id,
        name: "world".into(),
        rank: 1,
        global_ranks: vec![4, 6, 8],
        timeout: Duration::from_secs(5),
    };
    GroupFlight::new(recorder, info)
}

fn collective(index: u8, sequence: u64, count: u64) -> Entry {
    Entry {
        kind: Kind::collective(index),
        dtype: 1,
        op: 1,
        plan: 0xab,
        priority: 2,
        rank: NO_RANK,
        sequence,
        count,
    }
}

fn read(recorder: &FlightRecorder) -> Value {
    serde_json::from_str(&recorder.json("call")).unwrap()
}

#[test]
fn file_has_the_layout_of_pytorchs_recorder() {
    let recorder = recorder(None);
    let group = group(&recorder, 0x12);
    group.name_plan("all-reduce", 0xab, "ring");
    let number = group.issue(&collective(0, 0, 10), true);
    group.end(number);
    group.issue(&collective(3, 1, 10), false);
    group.immediate(&Entry::message(Kind::SEND, 2, 99, 64));
    group.immediate(&Entry::one_sided(OneSidedKind::Put, 0, 5, 4096));
    group.issue(
        &Entry::one_sided(OneSidedKind::WaitSignal, NO_RANK, 5, 0),
        true,
    );
    let found = read(&recorder);
    let unique = "world@0000000000000012";
    assert_eq!(found["version"], "2.10");
    assert_eq!(found["pg_config"][unique]["ranks"], "[4, 6, 8]");
    assert_eq!(found["pg_config"][unique]["desc"], "world");
    let status = &found["pg_status"][unique];
    assert_eq!(status["last_enqueued_collective"], 1);
    assert_eq!(status["last_completed_collective"], 0);
    let [reduced, gathered, sent, put, waits] = &found["entries"].as_array().unwrap()[..] else {
        panic!("five entries: {found}");
    };
    assert_eq!(reduced["profiling_name"], "weft:all_reduce");
    assert_eq!(reduced["process_group"][0], unique);
    assert_eq!(reduced["state"], "completed");
    assert_eq!(reduced["input_dtypes"][0], "Float");
    assert_eq!(reduced["weft"]["algorithm"], "ring");
    assert_eq!(reduced["weft"]["op"], "avg");
    assert_eq!(reduced["timeout_ms"], 5000);
    assert!(
        reduced["time_created_ns"].as_u64() <= reduced["time_discovered_completed_ns"].as_u64()
    );
    assert_eq!(gathered["state"], "scheduled");
    assert_eq!(gathered["output_sizes"], serde_json::json!([[30]]));
    assert_eq!(gathered["weft"]["op"], Value::Null);
    assert_eq!(sent["profiling_name"], "weft:send 1->2");
    assert_eq!(
        (&sent["is_p2p"], &sent["p2p_seq_id"]),
        (&true.into(), &1.into())
    );
    assert_eq!(sent["weft"]["tag"], 99);
    assert_eq!(sent["weft"]["buffer"], Value::Null);
    assert_eq!(put["profiling_name"], "weft:put 1->0");
    let details = &put["weft"];
    assert_eq!(
        (&details["buffer"], &details["peer"]),
        (&5.into(), &0.into())
    );
    assert_eq!(
        (&details["count"], &details["tag"]),
        (&4096.into(), &Value::Null)
    );
    assert_eq!(
        (&put["is_p2p"], &put["p2p_seq_id"]),
        (&true.into(), &2.into())
    );
    assert_eq!(waits["profiling_name"], "weft:wait_signal 1<-?");
    assert_eq!(
        (&waits["state"], &waits["weft"]["peer"]),
        (&"started".into(), &Value::Null)
    );
    assert_eq!(found["weft"]["rank"], 6);
}

#[test]
fn failure_is_written_once_with_unfinished_operations() {
    let directory = Directory::new();
    let recorder = recorder(Some(directory.0.clone()));
    let (first, second) = (group(&recorder, 1), group(&recorder, 2));
    first.issue(&collective(0, 5, 1), true);
    recorder.write_if_due();
    assert!(directory.read(1, 6).is_none(), "nothing has failed");
    let place = first.failed("lost rank 2").unwrap();
    assert!(place.ends_with("/job-0000000000000001"), "{place}");
    second.failed("lost rank 2, too");
    recorder.write_if_due();
    let found = directory.read(1, 6).unwrap();
    assert_eq!(found["weft"]["occasion"], "failure");
    assert_eq!(found["weft"]["failures"].as_array().unwrap().len(), 2);
    assert_eq!(found["weft"]["failures"][1]["error"], "lost rank 2, too");
    assert_eq!(found["entries"][0]["state"], "started");
    fs::remove_dir_all(&directory.0).unwrap();
    recorder.write_if_due();
    assert!(directory.read(1, 6).is_none(), "it was written before");
}

#[test]
fn slow_disk_does_not_delay_failure_report() {
    let directory = Directory::new();
    let recorder = recorder(Some(directory.0.clone()));
    let group = group(&recorder, 1);
    let slow = recorder.file.lock().unwrap();
    group.failed("lost rank 2");
    let before = Instant::now();
    recorder.write_if_due();
    assert!(before.elapsed() < Duration::from_secs(1));
    assert!(directory.read(1, 6).is_none());
    drop(slow);
    recorder.end_writing(Instant::now() + Duration::from_secs(60));
    let found = directory.read(1, 6).unwrap();
    assert_eq!(found["weft"]["failures"][0]["error"], "lost rank 2");
}

#[test]
fn unusable_directory_keeps_records_readable() {
    let directory = Directory::new();
    fs::write(&directory.0, "a file").unwrap();
    let recorder = recorder(Some(directory.0.clone()));
    assert_eq!(group(&recorder, 1).failed("lost rank 2"), None);
    recorder.write_if_due();
    assert_eq!(
        read(&recorder)["weft"]["failures"][0]["error"],
        "lost rank 2"
    );
    fs::remove_file(&directory.0).unwrap();
}

#[test]
fn recorder_without_directory_writes_nothing() {
    let recorder = recorder(None);
    assert_eq!(group(&recorder, 1).failed("over"), None);
    recorder.write_if_due();
    assert_eq!(read(&recorder)["weft"]["failures"][0]["error"], "over");
}

#[test]
fn failed_operation_is_not_completed() {
    let recorder = recorder(None);
    let group = group(&recorder, 1);
    let record = group.recorded(group.issue(&collective(0, 0, 1), true));
    record.end(true);
    let found = read(&recorder);
    assert_eq!(found["entries"][0]["state"], "started");
    assert_eq!(found["entries"][0]["weft"]["failed"], true);
    assert_eq!(
        found["entries"][0]["time_discovered_completed_ns"],
        Value::Null
    );
}

#[test]
fn closed_groups_without_records_are_forgotten() {
    let recorder = recorder(None);
    let _open = group(&recorder, 0);
    let kept = group(&recorder, 1);
    kept.issue(&collective(0, 0, 1), true);
    kept.close();
    for id in 2..1000 {
        group(&recorder, id).close();
    }
    assert_eq!(
        names(&read(&recorder)),
        ["world@0000000000000000", "world@0000000000000001"],
        "closed ones without records are not shown"
    );
    assert!(recorder.groups_known() < 100, "{}", recorder.groups_known());
}

#[test]
fn group_after_all_are_closed_begins_another_job() {
    let directory = Directory::new();
    let recorder = recorder(Some(directory.0.clone()));
    let (first, second) = (group(&recorder, 1), group(&recorder, 2));
    first.issue(&collective(0, 0, 1), true);
    second.failed("the first job's");
    recorder.write_if_due();
    assert!(directory.read(1, 6).is_some());
    first.close();
    second.close();
    let third = group(&recorder, 3);
    third.issue(&collective(0, 7, 1), true);
    third.failed("the second job's");
    recorder.write_if_due();
    let found = directory.read(3, 6).unwrap();
    assert_eq!(names(&found), ["world@0000000000000003"]);
    assert_eq!(found["entries"].as_array().unwrap().len(), 1);
    assert_eq!(found["weft"]["failures"].as_array().unwrap().len(), 1);
}

#[test]
fn a_group_without_calls_is_quiet_since_it_was_made() {
    let recorder = recorder(None);
    let _group = group(&recorder, 1);
    std::thread::sleep(Duration::from_millis(20));
    let quiet = recorder.activity().quiet;
    assert!(quiet >= Duration::from_millis(10), "{quiet:?}");
}

fn names(found: &Value) -> Vec<&String> {
    found["pg_config"].as_object().unwrap().keys().collect()
}
