//! The names of members, and the paths in manifests, made comparable.
//!
//! Nothing is ever written by such a name, so none of them is dangerous: they are only compared.

use std::borrow::Cow;

/// The upper half of code page 437, which names without the UTF-8 flag are in.
const CODE_PAGE_437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// A name as text: UTF-8 where it can be, for many tools don't tell, else code page 437.
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

/// What is compared: the segments, without those that mean nothing. A backslash parts them, too.
pub(super) fn segments(name: &str) -> Vec<&str> {
    name.split(['/', '\\'])
        .filter(|segment| !matches!(*segment, "" | "."))
        .collect()
}

/// Whether it is a folder's name.
pub(super) fn is_folder(name: &str) -> bool {
    name.ends_with(['/', '\\'])
}

/// Whether it is the manifest's name (sections 11.2 and 13.2), in whatever case.
pub(super) fn is_manifest(segments: &[&str]) -> bool {
    matches!(segments, [only] if only.eq_ignore_ascii_case("manifest.xml"))
}
