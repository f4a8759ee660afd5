//! The recorder of an endpoint: its ring, the state of its groups, and the files that it writes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use weft_transport::fork::AboveStandardStreams;
use weft_transport::{Moment, PerProcess, TickClock, Timeline, on_posix_signal};

use super::directory::PrivateDirectory;
use super::known::{
    Failure, GroupInfo, KnownGroup, NotedRenewal, ProcessInfo, RecordedJob, RecorderState,
};
use super::layout;
use super::local_socket::LocalSocket;
use super::ring::RecordRing;

/// The most closed groups; beyond it, those without records are removed.
const CLOSED_MAX: usize = 64;
/// The number of failures that are remembered.
const FAILURES_MAX: usize = 16;
/// The number of renewals of connections that are remembered.
const RENEWALS_MAX: usize = 64;
/// The longest delay of a failure's report while its record is written, as a disk may be slow.
const WRITING_MAX: Duration = Duration::from_millis(50);

/// Prefix of the directory of a user's records.
const USER_PREFIX: &str = "weft-flight-";
/// The number of jobs whose records are kept.
const JOBS_MAX: usize = 32;
/// The greatest age of a job's last record; older jobs are removed.
const AGE_MAX: Duration = Duration::from_secs(14 * 24 * 3600);

/// All recorders of this process.
static RECORDERS: PerProcess<Mutex<Vec<Weak<FlightRecorder>>>> = PerProcess::new(Mutex::default);

/// Progress of writing the records of failures.
#[derive(Default)]
struct Writing {
    /// The number of failures for which a thread was started; the last should end by `due`.
    requested: u64,
    due: Option<Instant>,
    /// The number of failures that are on disk, or could not be written.
    done: u64,
}

/// The last operations of an endpoint.
pub struct FlightRecorder {
    pub(super) ring: RecordRing,
    clock: TickClock,
    made: Moment,
    process: ProcessInfo,
    /// The parent of this user's directory; `None` if nothing is written.
    base: Option<PathBuf>,
    /// This user's directory, once it has been found. A file system may be slow, so the search does
    /// not wait for a failure.
    own: Arc<OnceLock<PathBuf>>,
    known: Mutex<RecorderState>,
    /// The number of failures whose records should be written, and of those already reported.
    failures: AtomicU64,
    /// Steps of training, where the program counts them.
    steps: AtomicU64,
    reported: AtomicU64,
    writing: Mutex<Writing>,
    written: Condvar,
    /// One file is written at a time.
    pub(super) file: Mutex<()>,
}

impl FlightRecorder {
    /// A recorder that writes below `base`, or writes nothing if `None`.
    pub fn new(process: ProcessInfo, base: Option<PathBuf>) -> Arc<Self> {
        let clock = TickClock::of_this_machine();
        let recorder = Arc::new(FlightRecorder {
            ring: RecordRing::new(clock),
            clock,
            made: clock.moment(),
            process,
            base,
            own: Arc::default(),
            known: Mutex::default(),
            failures: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            writing: Mutex::default(),
            written: Condvar::new(),
            file: Mutex::new(()),
        });
        let mut all = lock(RECORDERS.get());
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&recorder));
        drop(all);
        recorder
    }

    pub(super) fn add_group(&self, info: GroupInfo) -> u32 {
        let mut known = lock(&self.known);
        let number = known.next_group;
        if known.groups.values().all(|group| group.closed) {
            let rank = info.global_ranks.get(info.rank as usize).copied();
            known.job = Some(RecordedJob {
                id: info.id,
                rank: rank.unwrap_or(info.rank),
                first: number,
            });
            known.failures.clear();
            self.find_own_directory();
        }
        self.forget_closed(&mut known);
        known.next_group += 1;
        let group = KnownGroup {
            info,
            plans: BTreeMap::new(),
            closed: false,
            since: self.clock.now(),
        };
        known.groups.insert(number, group);
        number
    }

    /// Finds this user's directory in a thread. The error of a failed search is printed when a
    /// group fails.
    fn find_own_directory(&self) {
        if let (Some(base), None) = (self.base.clone(), self.own.get()) {
            let own = self.own.clone();
            let find = move || {
                if let Ok(found) = in_user_directory(&base, |found| Ok(found.path().to_owned())) {
                    let _ = own.set(found);
                }
            };
            let thread = std::thread::Builder::new().name("weft-flight".into());
            let _ = thread.spawn(find);
        }
    }

    fn forget_closed(&self, known: &mut RecorderState) {
        if known.groups.values().filter(|group| group.closed).count() <= CLOSED_MAX {
            return;
        }
        let records = self.ring.records();
        let used = |number| records.iter().any(|record| record.group == number);
        (known.groups).retain(|number, group| !group.closed || used(*number));
    }

    pub(super) fn close_group(&self, group: u32) -> Option<RecordedJob> {
        let mut known = lock(&self.known);
        if let Some(group) = known.groups.get_mut(&group) {
            group.closed = true;
        }
        let ended = known.groups.values().all(|group| group.closed);
        known.job.filter(|_| ended)
    }

    pub(super) fn name_plan(&self, group: u32, plan: (&'static str, u16), name: &str) {
        if let Some(group) = lock(&self.known).groups.get_mut(&group) {
            group.plans.insert(plan, name.into());
        }
    }

    pub(super) fn failed(&self, group: u32, why: &str) -> Option<String> {
        let mut known = lock(&self.known);
        if known.failures.len() == FAILURES_MAX {
            known.failures.remove(0);
        }
        known.failures.push(Failure {
            group,
            at: self.clock.now(),
            why: why.into(),
        });
        let job = known.job?;
        drop(known);
        let place = self.place_within(job, WRITING_MAX)?;
        self.failures.fetch_add(1, Ordering::Release);
        Some(place.display().to_string())
    }

    /// The directory for a job's records. `base` if finding it takes longer than `time_max`, `None`
    /// if it cannot be created.
    fn place_within(&self, job: RecordedJob, time_max: Duration) -> Option<PathBuf> {
        if let Some(own) = self.own.get() {
            return Some(own.join(job.directory()));
        }
        let base = self.base.clone()?;
        let (sender, found) = channel();
        let search = move || {
            let place = in_user_directory(&base, |own| Ok(own.path().join(job.directory())));
            let _ = sender.send(place);
        };
        let thread = std::thread::Builder::new().name("weft-flight".into());
        let answer = thread.spawn(search).map(|_| found.recv_timeout(time_max));
        match answer {
            Ok(Ok(Ok(place))) => return Some(place),
            Ok(Ok(Err(error))) | Err(error) => self.warn(&error),
            Ok(Err(RecvTimeoutError::Timeout)) => return self.base.clone(),
            Ok(Err(RecvTimeoutError::Disconnected)) => {}
        }
        None
    }

    /// Writes the records if a group has failed since the last time. Call this before a failure is
    /// reported, so that its receiver finds them; it waits no longer than a limit.
    #[inline]
    pub fn write_if_due(self: &Arc<Self>) {
        let failures = self.failures.load(Ordering::Acquire);
        if failures != self.reported.load(Ordering::Acquire) {
            self.write_failures(failures);
            self.reported.fetch_max(failures, Ordering::Release);
        }
    }

    #[cold]
    fn write_failures(self: &Arc<Self>, failures: u64) {
        let mut writing = lock(&self.writing);
        if writing.requested < failures {
            writing.requested = failures;
            writing.due = Some(Instant::now() + WRITING_MAX);
            let recorder = self.clone();
            let thread = std::thread::Builder::new().name("weft-flight".into());
            if let Err(error) = thread.spawn(move || recorder.write_until(failures)) {
                report(format_args!(
                    "is not written, because no thread could be started: {error}"
                ));
                writing.done = failures;
            }
        }
        let due = writing.due;
        self.wait_written(writing, failures, due);
    }

    fn write_until(&self, failures: u64) {
        self.write("failure");
        let mut writing = lock(&self.writing);
        writing.done = writing.done.max(failures);
        self.written.notify_all();
    }

    fn wait_written(&self, writing: MutexGuard<'_, Writing>, failures: u64, due: Option<Instant>) {
        let left = due.map_or(Duration::ZERO, |due| {
            due.saturating_duration_since(Instant::now())
        });
        let open = |writing: &mut Writing| writing.done < failures;
        // Nothing can be done if the lock is poisoned or the time is over.
        let _ = self.written.wait_timeout_while(writing, left, open);
    }

    /// Waits for records that are being written, at most until `due`.
    pub fn end_writing(&self, due: Instant) {
        let writing = lock(&self.writing);
        let requested = writing.requested;
        self.wait_written(writing, requested, Some(due));
    }

    /// Writes the records to the job's directory. Errors are printed on standard error, since no
    /// caller could handle them.
    fn write(&self, occasion: &str) {
        let _alone = lock(&self.file);
        let (Some(base), Some(job)) = (&self.base, lock(&self.known).job) else {
            return;
        };
        let written = in_user_directory(base, |own| {
            let directory = own.subdirectory(&job.directory())?;
            directory.write(&format!("rank{}.json", job.rank), &self.json(occasion))?;
            own.sweep(JOBS_MAX, AGE_MAX)
        });
        if let Err(error) = written {
            self.warn(&error);
        }
    }

    fn warn(&self, error: &io::Error) {
        let place = self.base.as_deref().unwrap_or("nowhere".as_ref()).display();
        report(format_args!("cannot be written below {place}: {error}"));
    }

    /// Notes that a connection broke and was made anew.
    pub fn note_renewal(&self, what: &str) {
        let renewals = &mut lock(&self.known).renewals;
        if renewals.len() == RENEWALS_MAX {
            renewals.pop_front();
        }
        renewals.push_back(NotedRenewal {
            at: self.clock.now(),
            what: what.into(),
        });
    }

    /// Counts a step of training.
    pub fn count_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// The steps that were counted.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The monotonic clock of this host, in microseconds.
    pub fn monotonic_us(&self) -> u64 {
        self.clock.moment().monotonic_ns / 1000
    }

    pub(super) fn timeline(&self) -> Timeline {
        Timeline::new(self.made, self.clock.moment())
    }

    pub(super) fn with_known<T>(&self, read: impl FnOnce(&RecorderState) -> T) -> T {
        read(&lock(&self.known))
    }

    /// The last job, if it has a directory of records, where local programs find it.
    pub fn job(&self) -> Option<RecordedJob> {
        self.base.as_ref().and(lock(&self.known).job)
    }

    /// Listens for local programs of this user at a socket in a job's directory of records; None
    /// where no records are written. Making the directory may take as long as the disk does.
    ///
    /// # Errors
    ///
    /// The directory or the socket cannot be made.
    pub fn listen(&self, job: RecordedJob) -> io::Result<Option<LocalSocket>> {
        let Some(base) = &self.base else {
            return Ok(None);
        };
        in_user_directory(base, |own| {
            own.sweep(JOBS_MAX, AGE_MAX)?;
            let directory = own.subdirectory(&job.directory())?;
            LocalSocket::listen(directory, &format!("rank{}.sock", job.rank)).map(Some)
        })
    }

    #[cfg(test)]
    pub(super) fn groups_known(&self) -> usize {
        lock(&self.known).groups.len()
    }

    /// The records as the content of a file.
    pub(super) fn json(&self, occasion: &str) -> String {
        let records = self.ring.records();
        let timeline = self.timeline();
        let known = lock(&self.known);
        layout::json(&records, &known, &self.process, &timeline, occasion)
    }
}

/// A standard error that cannot be written to, as a broken pipe, ends nothing.
fn report(failure: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "weft: the flight record {failure}");
}

/// Finds or makes this user's directory in `base`. Several threads do so at the same time: each
/// keeps what it opens off the numbers of standard streams, which others rely on.
fn in_user_directory<T>(
    base: &Path,
    act: impl FnOnce(&PrivateDirectory) -> io::Result<T>,
) -> io::Result<T> {
    let _above = AboveStandardStreams::new()?;
    act(&PrivateDirectory::of_user(base, USER_PREFIX)?)
}

/// The records of all endpoints of this process, as JSON in the layout of the files.
pub fn records() -> Vec<String> {
    let all = all_recorders();
    let with_groups = all
        .iter()
        .filter(|recorder| lock(&recorder.known).job.is_some());
    with_groups.map(|recorder| recorder.json("call")).collect()
}

/// Writes the records of all endpoints whenever this process gets a signal.
///
/// The previous handler is called too; a handler that is set later replaces this one.
///
/// # Errors
///
/// If the handler or its thread cannot be set up.
pub fn write_on_signal(signal: i32) -> io::Result<()> {
    let write = || {
        for recorder in all_recorders() {
            recorder.write("signal");
        }
    };
    on_posix_signal(signal, Box::new(write))
}

fn all_recorders() -> Vec<Arc<FlightRecorder>> {
    let all = lock(RECORDERS.get());
    all.iter().filter_map(Weak::upgrade).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
