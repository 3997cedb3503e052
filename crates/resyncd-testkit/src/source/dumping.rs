//! The operations on the dumps of the sample Source.

use resourcesync::SourceTime;

use super::{MemberFault, SampleSource};

impl SampleSource {
    /// Publishes a Resource Dump; returns its time. Its packages reuse the names of the previous ones.
    pub fn refresh_resource_dump(&self, set: &str) -> SourceTime {
        let mut state = self.shared.state.lock();
        let at = state.boundary();
        state.set_mut(set).refresh_resource_dump(at);
        at
    }

    /// Adds the changes since the last package to the Change Dump, in one package that ends now, or in several if the options limit
    /// their size. Returns how many.
    pub fn pack_changes(&self, set: &str) -> usize {
        let mut state = self.shared.state.lock();
        let until = state.boundary();
        state.set_mut(set).dumps_mut().pack_changes(until)
    }

    /// Drops the oldest packages of the Change Dump and retains `keep`; returns how many were dropped.
    pub fn drop_old_change_packages(&self, set: &str, keep: usize) -> usize {
        let mut state = self.shared.state.lock();
        state.set_mut(set).dumps_mut().drop_old_changes(keep)
    }

    /// Plans a fault of a resource's members in all later packages; `None`: no fault.
    pub fn spoil_member(&self, set: &str, name: &str, fault: Option<MemberFault>) {
        let mut state = self.shared.state.lock();
        let set = state.set_mut(set);
        let uri = set.resource_uri(name);
        set.dumps_mut().plan_fault(uri.as_str(), fault);
    }
}
