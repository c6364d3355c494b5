// Files for the person who looks.

/** Hands a file to the browser. */
export function download(name: string, content: Blob | string, kind = "text/csv"): void {
  const blob = content instanceof Blob ? content : new Blob([content], { type: `${kind};charset=utf-8` });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = fileName(name);
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function fileName(text: string): string {
  const plain = text.normalize("NFKC").replace(/[^\p{L}\p{N}._-]+/gu, "-");
  return plain.replace(/^[-.]+|-+(?=\.)|-+$/g, "").slice(-120) || "fillerscope";
}
