//! Names of members and paths in manifests, normalized for comparison.
//!
//! No file is ever written under such a name: they are only compared.

use std::borrow::Cow;

/// The upper half of code page 437, the encoding of names without the UTF-8 flag.
const CODE_PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// A name as text: UTF-8 if valid, as many tools do not set the flag, else code page 437.
pub(super) fn decode(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Cow::Borrowed(text);
    }
    let decoded = name.iter().map(|byte| match byte.checked_sub(0x80) {
        None => char::from(*byte),
        Some(upper) => CODE_PAGE_437
            .chars()
            .nth(upper.into())
            .unwrap_or(char::REPLACEMENT_CHARACTER),
    });
    Cow::Owned(decoded.collect())
}

/// The segments of a name, without empty ones and `.`. A backslash separates them as well.
pub(super) fn segments(name: &str) -> Vec<&str> {
    name.split(['/', '\\'])
        .filter(|segment| !matches!(*segment, "" | "."))
        .collect()
}

/// Whether it is the name of a folder.
pub(super) fn is_folder(name: &str) -> bool {
    name.ends_with(['/', '\\'])
}

/// Whether it is the name of the manifest (sections 11.2 and 13.2), in any case.
pub(super) fn is_manifest(segments: &[&str]) -> bool {
    matches!(segments, [only] if only.eq_ignore_ascii_case("manifest.xml"))
}
