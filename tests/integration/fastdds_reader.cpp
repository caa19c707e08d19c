// A reader on eProsima Fast DDS, the vendor behind ROS 2's default middleware, that knows nothing of swarmd: it prints
// the CDR payload of each sample of one topic in hex.
//
//   fastdds_reader DOMAIN TOPIC TYPE COUNT
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <string>
#include <thread>
#include <vector>

namespace fast = eprosima::fastdds::dds;
namespace rtps = eprosima::fastrtps::rtps;
using Payload = std::vector<unsigned char>;

class AnyType : public fast::TopicDataType {
 public:
  explicit AnyType(const char* name) {
    setName(name);
    m_typeSize = 1 << 20;
    m_isGetKeyDefined = false;
    auto_fill_type_object(false);
    auto_fill_type_information(false);
  }
  bool serialize(void*, rtps::SerializedPayload_t*) override { return false; }
  bool deserialize(rtps::SerializedPayload_t* from, void* to) override {
    static_cast<Payload*>(to)->assign(from->data, from->data + from->length);
    return true;
  }
  std::function<uint32_t()> getSerializedSizeProvider(void*) override {
    return [] { return 0u; };
  }
  void* createData() override { return new Payload; }
  void deleteData(void* data) override { delete static_cast<Payload*>(data); }
  bool getKey(void*, rtps::InstanceHandle_t*, bool) override { return false; }
};

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  auto* participant = fast::DomainParticipantFactory::get_instance()->create_participant(
      std::stoul(argv[1]), fast::PARTICIPANT_QOS_DEFAULT);
  fast::TypeSupport type(new AnyType(argv[3]));
  type.register_type(participant);
  auto* topic = participant->create_topic(argv[2], type.get_type_name(), fast::TOPIC_QOS_DEFAULT);
  fast::DataReaderQos qos = fast::DATAREADER_QOS_DEFAULT;
  qos.reliability().kind = fast::RELIABLE_RELIABILITY_QOS;
  qos.durability().kind = fast::TRANSIENT_LOCAL_DURABILITY_QOS;
  qos.history().depth = 10;
  auto* reader = participant->create_subscriber(fast::SUBSCRIBER_QOS_DEFAULT)->create_datareader(topic, qos);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Payload payload;
  fast::SampleInfo info;
  for (int left = std::stoi(argv[4]); left > 0 && std::chrono::steady_clock::now() < end;) {
    if (reader->take_next_sample(&payload, &info) == ReturnCode_t::RETCODE_OK && info.valid_data) {
      for (unsigned char byte : payload) std::printf("%02x", byte);
      std::printf("\n");
      std::fflush(stdout);
      --left;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}
