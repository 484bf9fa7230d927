/** The services as the published client describes them: what it compiled from E2B's own definitions. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { DescFile, DescService } from '@bufbuild/protobuf';
import { fileDesc } from '@bufbuild/protobuf/codegenv2';
import { file_google_protobuf_timestamp } from '@bufbuild/protobuf/wkt';

function publishedFiles(): DescFile[] {
  const bundle = readFileSync(createRequire(import.meta.url).resolve('e2b'), 'utf8');
  const encoded = [...bundle.matchAll(/fileDesc\)?\(\s*"([A-Za-z0-9+/=]+)"/g)].map((match) => match[1]!);
  return encoded.map((text) => fileDesc(text, [file_google_protobuf_timestamp]));
}

export function publishedServices(): DescService[] {
  return publishedFiles().flatMap((file) => file.services);
}
