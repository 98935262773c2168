//! Settings of the packet interface.

use weft::job::JobError;
use weft_core::config::{within, ConfigError, Key, Table};

weft_core::settings! {
    /// Settings of the packet interface of an endpoint.
    #[derive(Clone, Debug)]
    pub struct Settings {}
    multicast_credit: u32 = 32, "packets", within(1, 1 << 16),
        "Packets of a multicast tree in flight over an edge: hides a round trip.";
    packets_kept: u32 = 256, "packets", within(0, 1 << 20),
        "Packets a program may keep after their upcall; each takes credit from its sender.";
    rcpy_tlb: u32 = 256, "pages", within(1, 1 << 20),
        "Translations of remote pages of 64 KiB kept for each peer; 256 cover 16 MiB.";
}

impl Table for Settings {
    const KEYS: &'static [Key] = Settings::KEYS;

    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.set_field(name, value)
    }

    fn get(&self, name: &str) -> Option<String> {
        self.get_field(name)
    }
}

impl Settings {
    /// Reads the settings from the variables `WEFT_MULTICAST_CREDIT`, `WEFT_PACKETS_KEPT` and
    /// `WEFT_RCPY_TLB`.
    ///
    /// # Errors
    /// A value is not understood.
    pub fn from_env() -> Result<Settings, JobError> {
        let mut settings = Settings::default();
        weft::settings::read(&mut settings)?;
        Ok(settings)
    }
}
